#include "warp/theta.h"

#include "core/half.h"

namespace warpfuse {
namespace {

template <class T>
void widen_all(const void* theta, std::int64_t first, int count, double* values) {
    for (int i = 0; i < count; ++i) values[i] = widen(static_cast<const T*>(theta)[first + i]);
}

} // namespace

void read_theta(const void* theta, DType dtype, std::int64_t batch, int axes, std::int64_t n, double (&values)[12]) {
    const int count = axes * (axes + 1);
    const std::int64_t first = batch == 1 ? 0 : n * count;
    switch (dtype) {
    case DType::Float32: return widen_all<float>(theta, first, count, values);
    case DType::Float16: return widen_all<Float16>(theta, first, count, values);
    case DType::BFloat16: return widen_all<BFloat16>(theta, first, count, values);
    case DType::Float64: return widen_all<double>(theta, first, count, values);
    }
}

PixelMap pixel_map(const SampleJob& job, std::int64_t n) {
    double theta[12];
    read_theta(job.theta, job.theta_dtype, job.theta_batch, job.axes, n, theta);
    return PixelMap::of(theta, job.axes, job.in, job.out, job.align_corners, job.grid_align_corners);
}

} // namespace warpfuse
