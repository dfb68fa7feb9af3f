#pragma once

#include "warp/warp.h"

// The same code, warp/generic, compiled for the baseline and for AVX2; the results are the same to the bit.
namespace warpfuse {

void grid_portable(const GridJob& job, const Pool& pool);
void sample_portable(const SampleJob& job, const Pool& pool);

void grid_avx2(const GridJob& job, const Pool& pool);
void sample_avx2(const SampleJob& job, const Pool& pool);

} // namespace warpfuse
