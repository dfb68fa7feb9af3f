#include "warp/warp.h"

#include "core/cpu.h"
#include "warp/paths.h"
#ifdef WARPFUSE_AVX2
#include "warp/avx2/sample.h"
#endif

namespace warpfuse {

void affine_grid(const GridJob& job, const Pool& pool) {
#ifdef WARPFUSE_AVX2
    if (vector_path() >= VectorPath::Avx2) return grid_avx2(job, pool);
#endif
    grid_portable(job, pool);
}

void affine_grid_sample(const SampleJob& job, const Pool& pool) {
#ifdef WARPFUSE_AVX2
    if (vector_path() >= VectorPath::Avx2) {
        if (!sample_f32_avx2(job, pool)) sample_avx2(job, pool);
        return;
    }
#endif
    sample_portable(job, pool);
}

} // namespace warpfuse
