#include "ops/call.h"

#include <cinttypes>
#include <cstdio>

namespace warpfuse {

bool Shape::empty() const {
    for (std::size_t i = 0; i < rank; ++i) {
        if (dims[i] == 0) return true;
    }
    return false;
}

ShapeText::ShapeText(const Shape& shape) {
    constexpr std::size_t room = sizeof("-9223372036854775808, ...]");
    std::size_t used = std::size_t(std::snprintf(text, sizeof(text), "["));
    for (std::size_t i = 0; i < shape.rank; ++i) {
        if (used + room > sizeof(text)) {
            used += std::size_t(std::snprintf(text + used, sizeof(text) - used, ", ..."));
            break;
        }
        used += std::size_t(std::snprintf(text + used, sizeof(text) - used, "%s%" PRId64, i ? ", " : "", shape.dims[i]));
    }
    std::snprintf(text + used, sizeof(text) - used, "]");
}

Pool Call::pool() const {
    const auto run = [](void* context, Pool::Task task, std::size_t count, void* data) {
        const auto& call = *static_cast<const Call*>(context);
        const ort::Api& api = call.site_.api();
        const auto* kernel_context = static_cast<const ort::KernelContext*>(call.context_);
        ort::Status* status =
            api.call<ort::KernelContext_ParallelFor>(kernel_context, task, count, count, data);
        if (!status) return;
        api.call<ort::ReleaseStatus>(status);
        for (std::size_t i = 0; i < count; ++i) task(data, i);
    };
    return {run, const_cast<Call*>(this)};
}

ort::Status* Call::input(std::size_t index, const char* name, Tensor& tensor) const {
    const ort::Api& api = site_.api();
    const auto* context = static_cast<const ort::KernelContext*>(context_);
    if (ort::Status* status = api.call<ort::KernelContext_GetInput>(context, index, &tensor.value)) return status;
    if (!tensor.value) return site_.error("%s is missing", name);
    ort::TensorInfo* info = nullptr;
    if (ort::Status* status = api.call<ort::GetTensorInfo>(tensor.value, &info)) return status;
    Shape& shape = tensor.shape;
    ort::Status* status = api.call<ort::GetTensorElementType>(info, &tensor.type);
    if (!status) status = api.call<ort::GetDimensionsCount>(info, &shape.rank);
    if (!status && shape.rank > Shape::most) status = site_.error("%s has %zu axes", name, shape.rank);
    if (!status) status = api.call<ort::GetDimensions>(info, shape.dims, shape.rank);
    api.call<ort::ReleaseTensorInfo>(info);
    tensor.data = nullptr;
    if (status || tensor.type == ort::ElementType::String) return status;
    void* data = nullptr; // the interface has no reader of constant data
    status = api.call<ort::GetTensorMutableData>(const_cast<ort::Value*>(tensor.value), &data);
    tensor.data = data;
    return status;
}

ort::Status* Call::output(const Shape& shape, std::size_t element_bytes, ort::Value*& value, void*& data) const {
    std::int64_t bytes = std::int64_t(element_bytes);
    for (std::size_t i = 0; i < shape.rank; ++i) {
        if (__builtin_mul_overflow(bytes, shape.dims[i], &bytes)) {
            return site_.error("an output of %s is too large", ShapeText(shape).text);
        }
    }
    const ort::Api& api = site_.api();
    const auto* dims = static_cast<const std::int64_t*>(shape.dims);
    if (ort::Status* status =
            api.call<ort::KernelContext_GetOutput>(context_, std::size_t(0), dims, shape.rank, &value)) {
        return status;
    }
    if (!value) return site_.error("the output is missing");
    return api.call<ort::GetTensorMutableData>(value, &data);
}

} // namespace warpfuse
