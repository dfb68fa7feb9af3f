#include "ops/inference.h"

namespace warpfuse {

bool Inference::done(ort::Status* status) const {
    if (status) api_.call<ort::ReleaseStatus>(status);
    return !status;
}

bool Inference::input(std::size_t index, OpenTensor& tensor) const {
    ort::TensorInfo* held = nullptr; // the context's, not ours to release
    if (!done(api_.call<ort::ShapeInferContext_GetInputTypeShape>(context_, index, &held))) return false;
    const ort::TensorInfo* info = held;
    Shape& shape = tensor.shape;
    if (!done(api_.call<ort::GetTensorElementType>(info, &tensor.type))) return false;
    if (!done(api_.call<ort::GetDimensionsCount>(info, &shape.rank))) return false;
    if (shape.rank == 0 || shape.rank > Shape::most) return false; // an unknown rank looks like a scalar's
    return done(api_.call<ort::GetDimensions>(info, static_cast<std::int64_t*>(shape.dims), shape.rank)) &&
           done(api_.call<ort::GetSymbolicDimensions>(info, static_cast<const char**>(tensor.names), shape.rank));
}

bool Inference::read(const char* name, ort::AttributeType type, void* data, std::size_t bytes) const {
    const ort::OpAttribute* attribute = nullptr;
    std::size_t read = 0;
    return done(api_.call<ort::ShapeInferContext_GetAttribute>(context_, name, &attribute)) &&
           done(api_.call<ort::ReadOpAttr>(attribute, type, data, bytes, &read));
}

bool Inference::read(const char* name, std::int64_t& value) const {
    return read(name, ort::AttributeType::Int, &value, sizeof(value));
}

bool Inference::read(const char* name, std::int64_t (&values)[2]) const {
    return read(name, ort::AttributeType::Ints, values, sizeof(values));
}

// The runtime takes no dim without a length or a name, and dims of one name for equal, so a shape with such a dim is
// not told at all.
// The type goes with the shape: some versions take it from here, whatever they inferred before.
void Inference::output(const OpenTensor& tensor) const {
    for (std::size_t i = 0; i < tensor.shape.rank; ++i) {
        if (tensor.shape.dims[i] < 0 && !tensor.names[i][0]) return;
    }
    ort::TensorInfo* info = nullptr;
    if (!done(api_.call<ort::CreateTensorInfo>(&info))) return;
    const auto* dims = static_cast<const std::int64_t*>(tensor.shape.dims);
    auto** names = const_cast<const char**>(tensor.names);
    if (done(api_.call<ort::SetTensorElementType>(info, tensor.type)) &&
        done(api_.call<ort::SetDimensions>(info, dims, tensor.shape.rank)) &&
        done(api_.call<ort::SetSymbolicDimensions>(info, names, tensor.shape.rank))) {
        const ort::TensorInfo* ready = info;
        done(api_.call<ort::ShapeInferContext_SetOutputTypeShape>(context_, std::size_t(0), ready));
    }
    api_.call<ort::ReleaseTensorInfo>(info);
}

} // namespace warpfuse
