#include "ops/affine_grid_sample.h"

#include <cinttypes>
#include <string>

#include "ops/geometry.h"

namespace warpfuse {

ort::Status* AffineGridSampleOp::read(const Attributes& attributes) {
    std::string interpolation = "linear", outside = "zeros";
    if (ort::Status* status = attributes.read("mode", interpolation)) return status;
    if (ort::Status* status = attributes.read("padding_mode", outside)) return status;
    if (ort::Status* status = attributes.read("align_corners", align_corners)) return status;
    if (ort::Status* status = attributes.read("grid_align_corners", grid_align_corners)) return status;

    if (interpolation == "linear" || interpolation == "bilinear") {
        mode = Mode::Linear;
    } else if (interpolation == "nearest") {
        mode = Mode::Nearest;
    } else if (interpolation == "cubic" || interpolation == "bicubic") {
        mode = Mode::Cubic;
    } else {
        return site.error("mode must be linear, nearest or cubic, got \"%s\"", interpolation.c_str());
    }
    if (outside == "zeros") {
        padding = Padding::Zeros;
    } else if (outside == "border") {
        padding = Padding::Border;
    } else if (outside == "reflection") {
        padding = Padding::Reflection;
    } else {
        return site.error("padding_mode must be zeros, border or reflection, got \"%s\"", outside.c_str());
    }
    return nullptr;
}

ort::Status* AffineGridSampleOp::run(const Call& call) const {
    Tensor x, theta, size;
    Geometry geometry;
    if (ort::Status* status = call.input(0, "x", x)) return status;
    if (ort::Status* status = call.input(1, "theta", theta)) return status;
    if (ort::Status* status = call.input(2, "size", size)) return status;
    if (ort::Status* status = geometry.read(site, theta, size)) return status;

    const int axes = geometry.axes;
    const std::int64_t* dims = x.shape.dims;
    if (x.shape.rank != std::size_t(axes) + 2) {
        return site.error("x must have %d axes for a size of %d values, got %s", axes + 2, axes + 2,
                          ShapeText(x.shape).text);
    }
    if (mode == Mode::Cubic && axes == 3) return site.error("mode cubic is for images, got x of %s", ShapeText(x.shape).text);
    if (dims[0] != geometry.n) {
        return site.error("x has the batch %" PRId64 ", the grid %" PRId64, dims[0], geometry.n);
    }
    for (int i = 0; i < axes; ++i) {
        if (dims[2 + i] < 1) return site.error("x must have spatial axes of 1 or more, got %s", ShapeText(x.shape).text);
    }

    SampleJob job{};
    job.dtype = dtype_of(x.type);
    job.axes = axes;
    job.mode = mode;
    job.padding = padding;
    job.align_corners = align_corners;
    job.grid_align_corners = grid_align_corners;
    job.x = x.data;
    job.theta = theta.data;
    job.theta_dtype = dtype_of(theta.type);
    job.theta_batch = geometry.theta_batch;
    job.n = dims[0];
    job.c = dims[1];
    job.in = {axes == 3 ? dims[2] : 1, dims[axes], dims[axes + 1]};
    job.out = geometry.out;

    Shape shape = x.shape;
    if (axes == 3) shape.dims[2] = geometry.out.d;
    shape.dims[axes] = geometry.out.h;
    shape.dims[axes + 1] = geometry.out.w;
    ort::Value* y = nullptr;
    if (ort::Status* status = call.output(shape, bytes_of(job.dtype), y, job.y)) return status;
    if (!shape.empty()) affine_grid_sample(job, call.pool());
    return nullptr;
}

} // namespace warpfuse
