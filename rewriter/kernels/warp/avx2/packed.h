#pragma once

#include "warp/avx2/linear.h"
#include "warp/avx2/rows.h"

// Linear and cubic sampling tile by tile: the box of x that a tile reads is packed into pixels of several channels, and
// each tap is then one load.
namespace warpfuse {
namespace {

// One row of a tile, in as many channels as there are planes.
template <class Kernel, int K, bool Streams>
inline void sample_row(const Box& box, const int* index, const float* weights, int count, int planes,
                       std::ptrdiff_t plane, float* out) {
    constexpr int kMost = K == 2 ? 1 : K, kLeast = K == 2 ? 1 : K / 2 + 1;
    const int full = count / kLanes * kLanes;
    for (int at = 0; at < full; at += kLanes) {
        __m256 v[kMost];
        Kernel::taps(box, index + at, weights + at * Kernel::kWeights, v);
        for (int k = 0; k < kMost; ++k)
            if (k < kLeast || k < planes) store<Streams>(out + k * plane + at, v[k]);
    }
    if (full == count) return;
    __m256 v[kMost];
    Kernel::taps(box, index + full, weights + full * Kernel::kWeights, v);
    const __m256i mask = lane_mask(count - full);
    for (int k = 0; k < planes; ++k) _mm256_maskstore_ps(out + k * plane + full, mask, v[k]);
}

template <class Kernel, int K>
inline void sample_tile(const Work& work, const Tile& tile, Scratch& scratch) {
    constexpr int kChannels = K == 2 ? 1 : K;
    Box box;
    const Reach reach = box_axes(work, tile, Kernel::kSupport, box.axes);
    if (reach == Reach::Outside) return fill_zero(work, tile);
    box.stride = round_up(box.axes[0].size, 2) * K;
    box.data = scratch.box;
    if (reach == Reach::TooFar || std::int64_t(box.stride) * box.axes[1].size > kBoxFloats)
        return sample_rows<Kernel::kMode>(work, tile, scratch);
    const Lines lines[2] = {{work.map, 0, tile, box.axes[0]}, {work.map, 1, tile, box.axes[1]}};
    const int row_pixels = round_up(tile.w, kLanes);
    const bool keep = work.channels > kChannels; // the coordinates, for the next channels
    const std::ptrdiff_t plane = work.out_plane, width = work.job.out.w;
    const bool streams = K < 8 && work.streams; // eight planes are more than the processor combines writes of
    const bool extends = Kernel::kSupport.before > 0;
    for (std::int64_t c = 0; c < work.channels; c += kChannels) {
        const int planes = int(smaller(work.channels - c, std::int64_t(kChannels)));
        pack<K>(work.x + c * work.in_plane, work.in_plane, planes, work.job.in,
                extends ? work.job.padding : Padding::Zeros, work.job.align_corners, box);
        float* out = work.out(tile, c, 0);
        const std::ptrdiff_t next = c + kChannels < work.channels ? kChannels * plane : tile.w;
        for (int r = 0; r < tile.h; ++r, out += width) {
            // A tile's rows are too short for the processor to foresee what is written next.
            if (!streams)
                for (int k = 0; k < planes; ++k) prefetch(out + k * plane + next, tile.w);
            const int slot = keep ? r * row_pixels : 0;
            int* index = scratch.index + slot;
            float* weights = scratch.weights + slot * Kernel::kWeights;
            if (c == 0 || !keep) Kernel::weigh(box, lines, r, tile.w, index, weights);
            if (streams)
                sample_row<Kernel, K, true>(box, index, weights, tile.w, planes, plane, out);
            else
                sample_row<Kernel, K, false>(box, index, weights, tile.w, planes, plane, out);
        }
    }
}

// The tile whose box is smallest for its size, or an empty one if every box is too large.
template <class Kernel, int K>
inline Shape best_shape(const Work& work, const Tile& part) {
    constexpr double kRowCost = 10, kTileCost = 100, kWorst = 4; // in pixels packed; the last for each pixel written
    constexpr int kKept = 4 * kKeptPixels / Kernel::kWeights;
    const bool keep = work.channels > (K == 2 ? 1 : K);
    Shape best{0, 0};
    double least = kWorst;
    for (int w = 128; w >= 16; w /= 2)
        for (int h = kMaxRows; h >= 8; h /= 2) {
            if (keep && w * h > kKept) continue;
            const int columns = smaller(w, part.w), rows = smaller(h, part.h);
            double area = 1;
            for (int axis = 0; axis < 2; ++axis)
                area *= std::fabs(work.map.m[axis][0]) * (columns - 1) + std::fabs(work.map.m[axis][1]) * (rows - 1) +
                        Kernel::kSupport.before + Kernel::kSupport.after + 3;
            if (!(area * K <= kBoxFloats)) continue;
            const double cost = (area + kRowCost * rows + kTileCost) / (columns * rows);
            if (cost < least) {
                least = cost;
                best = {w, h};
            }
        }
    return best;
}

template <template <int> class Kernel, int K>
inline void sample_group(const Work& work, const Tile& part, Scratch& scratch) {
    const Shape shape = best_shape<Kernel<K>, K>(work, part);
    if (!shape.w) return sample_rows<Kernel<K>::kMode>(work, part, scratch);
    tiles(part, shape, [&](const Tile& tile) { sample_tile<Kernel<K>, K>(work, tile, scratch); });
}

// As many channels as come in eights with the widest pixels, the others with narrower ones.
template <template <int> class Kernel>
inline void sample_packed(const Work& work, const Tile& part, Scratch& scratch) {
    const std::int64_t odd = work.channels % 8, rest = odd > 4 ? 0 : odd, eights = work.channels - rest;
    if (eights) sample_group<Kernel, 8>(work.from(0, eights), part, scratch);
    if (rest > 2) sample_group<Kernel, 4>(work.from(eights, rest), part, scratch);
    if (rest == 1 || rest == 2) sample_group<Kernel, 2>(work.from(eights, rest), part, scratch);
}

} // namespace
} // namespace warpfuse
