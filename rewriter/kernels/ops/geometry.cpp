#include "ops/geometry.h"

#include <cinttypes>
#include <cstring>

namespace warpfuse {

DType dtype_of(ort::ElementType type) {
    switch (type) {
    case ort::ElementType::Float16: return DType::Float16;
    case ort::ElementType::BFloat16: return DType::BFloat16;
    case ort::ElementType::Float64: return DType::Float64;
    default: return DType::Float32;
    }
}

ort::Status* Geometry::read(const Site& site, const Tensor& theta, const Tensor& size) {
    if (size.shape.rank != 1 || (size.shape.dims[0] != 4 && size.shape.dims[0] != 5)) {
        return site.error("size must have the shape [4] or [5], got %s", ShapeText(size.shape).text);
    }
    Shape wanted; // what size holds
    wanted.rank = std::size_t(size.shape.dims[0]);
    std::memcpy(wanted.dims, size.data, wanted.rank * sizeof(*wanted.dims));
    const std::int64_t* spatial = wanted.dims + 2;
    axes = int(wanted.rank) - 2;
    for (int i = 0; i < axes; ++i) {
        if (spatial[i] < 1 || wanted.dims[0] < 0) {
            return site.error("size must hold N of 0 or more and spatial axes of 1 or more, got %s",
                              ShapeText(wanted).text);
        }
    }
    if (theta.shape.rank != 3 || theta.shape.dims[1] != axes || theta.shape.dims[2] != axes + 1) {
        return site.error("theta must have the shape [N, %d, %d] for a size of %zu values, got %s", axes, axes + 1,
                          wanted.rank, ShapeText(theta.shape).text);
    }
    theta_batch = theta.shape.dims[0];
    if (theta_batch != wanted.dims[0] && theta_batch != 1 && wanted.dims[0] != 1) {
        return site.error("theta's batch %" PRId64 " and size[0] = %" PRId64 " are neither equal nor 1", theta_batch,
                          wanted.dims[0]);
    }
    n = theta_batch == 1 ? wanted.dims[0] : theta_batch;
    out.w = spatial[axes - 1];
    out.h = spatial[axes - 2];
    out.d = axes == 3 ? spatial[0] : 1;
    return nullptr;
}

} // namespace warpfuse
