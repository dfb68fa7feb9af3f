#include "ops/attributes.h"

#include <cinttypes>

namespace warpfuse {

// Whether the runtime answers: it does where the attribute is there and of the kind that E reads.
template <class E, class... Arguments>
bool Attributes::holds(Arguments... arguments) const {
    ort::Status* status = site_.api().call<E>(info_, arguments...);
    if (status) site_.api().call<ort::ReleaseStatus>(status);
    return !status;
}

// The runtime says the same of a missing attribute and of one of another kind, so every other kind is tried.
ort::Status* Attributes::absent(const char* name, const char* kind) const {
    std::int64_t integer;
    float real;
    std::size_t size = 0;
    const bool there = holds<ort::KernelInfoGetAttribute_int64>(name, &integer) ||
                       holds<ort::KernelInfoGetAttribute_float>(name, &real) ||
                       holds<ort::KernelInfoGetAttribute_string>(name, static_cast<char*>(nullptr), &size) ||
                       holds<ort::KernelInfoGetAttributeArray_int64>(name, static_cast<std::int64_t*>(nullptr), &size) ||
                       holds<ort::KernelInfoGetAttributeArray_float>(name, static_cast<float*>(nullptr), &size);
    return there ? site_.error("%s must be %s", name, kind) : nullptr;
}

ort::Status* Attributes::read(const char* name, std::int64_t& value) const {
    return holds<ort::KernelInfoGetAttribute_int64>(name, &value) ? nullptr : absent(name, "an int");
}

ort::Status* Attributes::read(const char* name, float& value) const {
    return holds<ort::KernelInfoGetAttribute_float>(name, &value) ? nullptr : absent(name, "a float");
}

ort::Status* Attributes::read(const char* name, bool& value) const {
    std::int64_t integer = value;
    if (ort::Status* status = read(name, integer)) return status;
    if (integer != 0 && integer != 1) return site_.error("%s must be 0 or 1, got %" PRId64, name, integer);
    value = integer == 1;
    return nullptr;
}

ort::Status* Attributes::read(const char* name, std::string& value) const {
    std::size_t size = 0; // the terminator included
    if (!holds<ort::KernelInfoGetAttribute_string>(name, static_cast<char*>(nullptr), &size)) {
        return absent(name, "a string");
    }
    value.resize(size);
    if (!holds<ort::KernelInfoGetAttribute_string>(name, value.data(), &size)) return absent(name, "a string");
    value.resize(size - 1);
    return nullptr;
}

ort::Status* Attributes::read(const char* name, std::int64_t (&values)[2]) const {
    std::size_t count = 0;
    if (!holds<ort::KernelInfoGetAttributeArray_int64>(name, static_cast<std::int64_t*>(nullptr), &count)) {
        return absent(name, "two ints");
    }
    if (count != 2) return site_.error("%s must be two ints", name);
    return holds<ort::KernelInfoGetAttributeArray_int64>(name, &values[0], &count) ? nullptr : absent(name, "two ints");
}

} // namespace warpfuse
