#pragma once

#include "warp/avx2/coordinates.h"
#include "warp/avx2/rows.h"

// Nearest sampling, from the planes themselves: packing costs more than a single tap.
namespace warpfuse {
namespace {

constexpr Support kNearestSupport{0, 1};

// Index in a plane of x of each pixel of a tile's row; -1 outside.
inline void nearest_pixels(const BoxAxis (&axes)[2], const Extent& in, const Lines (&lines)[2], int row, int count,
                           int* index) {
    const __m256i width = _mm256_set1_epi32(int(in.w));
    const __m256i last_x = _mm256_set1_epi32(int(in.w) - 1), last_y = _mm256_set1_epi32(int(in.h) - 1);
    const __m256i origin_x = _mm256_set1_epi32(int(axes[0].origin) + int(lines[0].offset[row]));
    const __m256i origin_y = _mm256_set1_epi32(int(axes[1].origin) + int(lines[1].offset[row]));
    along(axes, lines, row, count, [&](int at, __m256 px, __m256 py) {
        const __m256i ix = _mm256_add_epi32(_mm256_cvtps_epi32(px), origin_x); // ties to even, as the origins are
        const __m256i iy = _mm256_add_epi32(_mm256_cvtps_epi32(py), origin_y);
        const __m256i below = _mm256_or_si256(ix, iy); // negative if either is
        const __m256i above = _mm256_or_si256(_mm256_cmpgt_epi32(ix, last_x), _mm256_cmpgt_epi32(iy, last_y));
        const __m256i outside = _mm256_srai_epi32(_mm256_or_si256(below, above), 31);
        const __m256i pixel = _mm256_add_epi32(_mm256_mullo_epi32(iy, width), ix);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(index + at), _mm256_or_si256(pixel, outside));
    });
}

template <bool Streams>
inline void nearest_row(const float* plane, const int* index, int count, float* out) {
    for (int at = 0; at < count; at += kLanes) {
        const __m256i pixel = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index + at));
        const __m256 inside = _mm256_castsi256_ps(_mm256_xor_si256(pixel, _mm256_set1_epi32(-1)));
        const __m256 v = _mm256_mask_i32gather_ps(_mm256_setzero_ps(), plane, pixel, inside, 4);
        if (at + kLanes <= count)
            store<Streams>(out + at, v);
        else
            store(out + at, v, count - at);
    }
}

// Wide where a row of y runs along rows of x; square where it crosses them.
inline Shape nearest_shape(const PixelMap& map) {
    static_assert(kKeptPixels >= 64 * 16);
    return std::fabs(map.m[1][0]) < std::fabs(map.m[0][0]) ? Shape{64, 16} : Shape{32, 32};
}

inline void sample_nearest(const Work& work, const Tile& tile, Scratch& scratch) {
    BoxAxis axes[2];
    const Reach reach = box_axes(work, tile, kNearestSupport, axes);
    if (reach == Reach::Outside) return fill_zero(work, tile);
    if (reach == Reach::TooFar) return sample_rows<Mode::Nearest>(work, tile, scratch);
    const Lines lines[2] = {{work.map, 0, tile, axes[0]}, {work.map, 1, tile, axes[1]}};
    const int row_pixels = round_up(tile.w, kLanes);
    for (int r = 0; r < tile.h; ++r)
        nearest_pixels(axes, work.job.in, lines, r, tile.w, scratch.index + r * row_pixels);
    const auto sample = work.streams ? nearest_row<true> : nearest_row<false>;
    for (std::int64_t c = 0; c < work.channels; ++c) // what a tile reads of one plane stays in the first cache
        for (int r = 0; r < tile.h; ++r)
            sample(work.x + c * work.in_plane, scratch.index + r * row_pixels, tile.w, work.out(tile, c, r));
}

} // namespace
} // namespace warpfuse
