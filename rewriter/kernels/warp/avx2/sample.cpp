#include "warp/avx2/sample.h"

#include "warp/avx2/nearest.h"
#include "warp/avx2/packed.h"
#include "warp/avx2/pieces.h"
#include "warp/theta.h"

namespace warpfuse {
namespace {

constexpr std::int64_t kStreamElements = 3 << 20; // 12 MB
constexpr std::int64_t kMaxSide = 1 << 22; // so that pixels of an axis and their halves are floats

inline void sample_piece(Work& work, const Tile& part) {
    for (int axis = 0; axis < 2; ++axis) {
        if (finite(work.map, axis)) continue;
        if (work.job.padding == Padding::Zeros) return fill_zero(work, part);
        work.map.m[axis][0] = work.map.m[axis][1] = work.map.t[axis] = 0;
    }
    Scratch scratch;
    if (work.job.mode == Mode::Nearest)
        tiles(part, nearest_shape(work.map), [&](const Tile& tile) { sample_nearest(work, tile, scratch); });
    else if (work.job.mode == Mode::Linear)
        sample_packed<Linear>(work, part, scratch);
    else
        sample_packed<Cubic>(work, part, scratch);
}

} // namespace

bool sample_f32_avx2(const SampleJob& job, const Pool& pool) {
    if (job.dtype != DType::Float32 || job.theta_dtype != DType::Float32 || job.axes != 2) return false;
    if (job.in.w > kMaxSide || job.in.h > kMaxSide || job.in.w * job.in.h > INT32_MAX) return false;
    if (job.n == 0 || job.c == 0) return true;
    const Cut cut(job);
    const std::ptrdiff_t in_plane = job.in.h * job.in.w, out_plane = job.out.h * job.out.w;
    const bool streams = job.n * job.c * out_plane >= kStreamElements && job.out.w % kLanes == 0 &&
                         reinterpret_cast<std::uintptr_t>(job.y) % sizeof(__m256) == 0;
    const auto run = [&](std::size_t task) {
        const Piece piece = cut.piece(job, task);
        const std::ptrdiff_t first = piece.n * job.c + piece.c;
        Work work{job, pixel_map(job, piece.n), static_cast<const float*>(job.x) + first * in_plane,
                  static_cast<float*>(job.y) + first * out_plane, piece.channels, in_plane, out_plane,
                  streams};
        sample_piece(work, piece.part);
        if (streams) _mm_sfence();
    };
    if (job.n * job.c * out_plane <= kPieceElements)
        Pool().each(cut.tasks(), run);
    else
        pool.each(cut.tasks(), run);
    return true;
}

} // namespace warpfuse
