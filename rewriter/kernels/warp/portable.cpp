#include "warp/generic/grid.h"
#include "warp/generic/sampler.h"
#include "warp/paths.h"

namespace warpfuse {

void grid_portable(const GridJob& job, const Pool& pool) { grid(job, pool); }
void sample_portable(const SampleJob& job, const Pool& pool) { sample(job, pool); }

} // namespace warpfuse
