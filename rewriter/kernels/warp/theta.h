#pragma once

#include <cstdint>

#include "warp/pixel_map.h"

namespace warpfuse {

// theta[n] ([axes, axes + 1], of any type, exact in double); a batch of 1 serves every n.
void read_theta(const void* theta, DType dtype, std::int64_t batch, int axes, std::int64_t n, double (&values)[12]);

// The transform of batch entry n.
PixelMap pixel_map(const SampleJob& job, std::int64_t n);

} // namespace warpfuse
