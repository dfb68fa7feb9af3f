#include "ops/rot90.h"

#include <cinttypes>

#include "ops/geometry.h"
#include "ops/small_elements.h"

namespace warpfuse {
namespace {

// Of a type that rotate() moves; 0 for all others.
std::size_t bytes_of(ort::ElementType type) {
    switch (type) {
    case ort::ElementType::Bool:
    case ort::ElementType::Int8:
    case ort::ElementType::UInt8:
    case ort::ElementType::Float8E4M3FN:
    case ort::ElementType::Float8E4M3FNUZ:
    case ort::ElementType::Float8E5M2:
    case ort::ElementType::Float8E5M2FNUZ:
    case ort::ElementType::Float8E8M0: return 1;
    case ort::ElementType::Int16:
    case ort::ElementType::UInt16:
    case ort::ElementType::Float16:
    case ort::ElementType::BFloat16: return 2;
    case ort::ElementType::Int32:
    case ort::ElementType::UInt32:
    case ort::ElementType::Float32: return 4;
    case ort::ElementType::Int64:
    case ort::ElementType::UInt64:
    case ort::ElementType::Float64:
    case ort::ElementType::Complex64: return 8;
    case ort::ElementType::Complex128: return 16;
    default: return 0;
    }
}

// Settles the plane for what came in.
ort::Status* settle(const Site& site, const char* attribute, Plane& plane, const Shape& shape) {
    const std::int64_t first = plane.axes[0], second = plane.axes[1];
    if (plane.settle(shape.rank)) return nullptr;
    return site.error("%s must be two distinct axes of a rank-%zu tensor, got [%" PRId64 ", %" PRId64 "]", attribute,
                      shape.rank, first, second);
}

void infer_turned(const Inference& inference, Plane plane) {
    OpenTensor tensor;
    if (!inference.input(0, tensor) || !plane.settle(tensor.shape.rank)) return;
    plane.turn(tensor.shape.dims);
    plane.turn(tensor.names);
    inference.output(tensor);
}

} // namespace

ort::Status* Rot90Op::read(const Attributes& attributes) {
    if (ort::Status* status = attributes.read("k", plane.k)) return status;
    return attributes.read("axes", plane.axes);
}

ort::Status* Rot90Op::run(const Call& call) const {
    Tensor x;
    if (ort::Status* status = call.input(0, "x", x)) return status;
    Plane turned = plane;
    if (ort::Status* status = settle(site, "axes", turned, x.shape)) return status;

    const bool strings = x.type == ort::ElementType::String;
    const bool nibbles = x.type == ort::ElementType::Int4 || x.type == ort::ElementType::UInt4 ||
                         x.type == ort::ElementType::Float4E2M1;
    const std::size_t bytes = bytes_of(x.type);
    if (!strings && !nibbles && bytes == 0) return site.error("there is no kernel for element type %d", int(x.type));
    Shape shape = x.shape;
    turned.turn(shape.dims);
    TurnJob job = turned.job(x.shape);
    ort::Value* y = nullptr;
    if (ort::Status* status = call.output(shape, strings ? sizeof(std::string) : bytes, y, job.y)) return status;
    job.x = x.data;
    if (shape.empty()) return nullptr;
    if (strings) return rotate_strings(site.api(), job, x.value, y);
    nibbles ? rotate_nibbles(job) : rotate(job, bytes, call.pool());
    return nullptr;
}

void Rot90Op::infer(const Inference& inference) {
    Plane plane;
    inference.read("k", plane.k);
    inference.read("axes", plane.axes);
    infer_turned(inference, plane);
}

ort::Status* CustomRotScaleOp::read(const Attributes& attributes) {
    std::string dims = "height,width";
    if (ort::Status* status = attributes.read("rotations", plane.k)) return status;
    if (ort::Status* status = attributes.read("scale_factor", scale)) return status;
    if (ort::Status* status = attributes.read("dims", dims)) return status;
    if (plane.parse(dims.c_str())) return nullptr;
    return site.error("dims must be two comma separated axes, each width, height, depth or an integer, got \"%s\"",
                      dims.c_str());
}

ort::Status* CustomRotScaleOp::run(const Call& call) const {
    Tensor x;
    if (ort::Status* status = call.input(0, "x", x)) return status;
    Plane turned = plane;
    if (ort::Status* status = settle(site, "dims", turned, x.shape)) return status;

    const DType dtype = dtype_of(x.type);
    Shape shape = x.shape;
    turned.turn(shape.dims);
    TurnJob job = turned.job(x.shape);
    job.x = x.data;
    ort::Value* y = nullptr;
    if (ort::Status* status = call.output(shape, bytes_of(dtype), y, job.y)) return status;
    if (!shape.empty()) rotate_scaled(job, dtype, scale, call.pool());
    return nullptr;
}

void CustomRotScaleOp::infer(const Inference& inference) {
    Plane plane;
    inference.read("rotations", plane.k);
    char dims[64] = "height,width";
    inference.read("dims", dims);
    if (plane.parse(dims)) infer_turned(inference, plane);
}

} // namespace warpfuse
