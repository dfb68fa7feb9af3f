#pragma once

#include <cstdint>

#include "ops/site.h"

namespace warpfuse {

// The attributes of one node. Each reader leaves `value` alone, the default, where the node has no such attribute, and
// gives an error where it is of another kind.
class Attributes {
public:
    Attributes(const Site& site, const ort::KernelInfo* info) : site_(site), info_(info) {}

    ort::Status* read(const char* name, std::int64_t& value) const;
    ort::Status* read(const char* name, float& value) const;
    ort::Status* read(const char* name, bool& value) const; // an int, 0 or 1
    ort::Status* read(const char* name, std::string& value) const;
    ort::Status* read(const char* name, std::int64_t (&values)[2]) const; // exactly two ints

private:
    ort::Status* absent(const char* name, const char* kind) const;
    template <class E, class... Arguments>
    bool holds(Arguments... arguments) const;

    const Site& site_;
    const ort::KernelInfo* info_;
};

} // namespace warpfuse
