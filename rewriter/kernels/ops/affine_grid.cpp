#include "ops/affine_grid.h"

#include "ops/geometry.h"

namespace warpfuse {

ort::Status* AffineGridOp::read(const Attributes& attributes) {
    return attributes.read("align_corners", align_corners);
}

ort::Status* AffineGridOp::run(const Call& call) const {
    Tensor theta, size;
    Geometry geometry;
    if (ort::Status* status = call.input(0, "theta", theta)) return status;
    if (ort::Status* status = call.input(1, "size", size)) return status;
    if (ort::Status* status = geometry.read(site, theta, size)) return status;

    Shape shape;
    shape.dims[shape.rank++] = geometry.n;
    if (geometry.axes == 3) shape.dims[shape.rank++] = geometry.out.d;
    shape.dims[shape.rank++] = geometry.out.h;
    shape.dims[shape.rank++] = geometry.out.w;
    shape.dims[shape.rank++] = geometry.axes;

    GridJob job{};
    job.dtype = dtype_of(theta.type);
    job.axes = geometry.axes;
    job.align_corners = align_corners;
    job.theta = theta.data;
    job.theta_batch = geometry.theta_batch;
    job.n = geometry.n;
    job.out = geometry.out;
    ort::Value* grid = nullptr;
    if (ort::Status* status = call.output(shape, bytes_of(job.dtype), grid, job.grid)) return status;
    if (!shape.empty()) affine_grid(job, call.pool());
    return nullptr;
}

} // namespace warpfuse
