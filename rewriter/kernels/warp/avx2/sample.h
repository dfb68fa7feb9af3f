#pragma once

#include "warp/warp.h"

namespace warpfuse {

// AffineGridSample of float32 images of two axes, for CPUs with AVX2 and FMA. False, with nothing written, for jobs
// that are not its own: other dtypes, three axes, extents whose indices would not fit. Where a coordinate is NaN or
// infinite, y is 0 under zero padding and some pixel of the image under the others.
bool sample_f32_avx2(const SampleJob& job, const Pool& pool);

} // namespace warpfuse
