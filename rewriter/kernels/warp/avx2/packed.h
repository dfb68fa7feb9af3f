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
    const int row_pixels = round_up(tile.w, kLanes);
    const bool keep = work.channels > kChannels; // the coordinates, for the next channels
    const int weights_of_tile = (keep ? tile.h : 1) * row_pixels * Kernel::kWeights;
    box.data = scratch.floats + weights_of_tile;
    if (reach == Reach::TooFar || std::int64_t(box.stride) * box.axes[1].size > kFloats - weights_of_tile)
        return sample_rows<Kernel::kMode>(work, tile, scratch);
    const Lines lines[2] = {{work.map, 0, tile, box.axes[0]}, {work.map, 1, tile, box.axes[1]}};
    constexpr int kHigher = K == 2 ? 1 : 0; // a packed row holds the next one too
    const Spans spans(work.map, tile, box.axes, Kernel::kSupport, Kernel::kSupport.after - kHigher,
                      Kernel::kSupport.before + 1);
    const std::ptrdiff_t plane = work.out_plane, width = work.job.out.w;
    const bool streams = K < 8 && work.streams; // eight planes are more than the processor combines writes of
    const bool extends = Kernel::kSupport.before > 0;
    for (std::int64_t c = 0; c < work.channels; c += kChannels) {
        const int planes = int(smaller(work.channels - c, std::int64_t(kChannels)));
        pack<K>(work.x + c * work.in_plane, work.in_plane, planes, work.job.in,
                extends ? work.job.padding : Padding::Zeros, work.job.align_corners, box, spans);
        float* out = work.out(tile, c, 0);
        const std::ptrdiff_t next = c + kChannels < work.channels ? kChannels * plane : tile.w;
        for (int r = 0; r < tile.h; ++r, out += width) {
            // A tile's rows are too short for the processor to foresee what is written next.
            if (!streams)
                for (int k = 0; k < planes; ++k) prefetch(out + k * plane + next, tile.w);
            const int slot = keep ? r * row_pixels : 0;
            int* index = scratch.index + slot;
            float* weights = scratch.floats + slot * Kernel::kWeights;
            if (c == 0 || !keep) Kernel::weigh(box, lines, r, tile.w, index, weights);
            if (streams)
                sample_row<Kernel, K, true>(box, index, weights, tile.w, planes, plane, out);
            else
                sample_row<Kernel, K, false>(box, index, weights, tile.w, planes, plane, out);
        }
    }
}

// The tile of which the least is packed for a pixel written, or an empty one if that is too much or no box fits.
template <class Kernel, int K>
inline Shape best_shape(const Work& work, const Tile& part) {
    constexpr int kWidths[] = {128, 96, 64, 48, 32, 16};
    constexpr double kWorst = 4, kSourceRowCost = 12, kRowCost = 10, kTileCost = 100; // in pixels packed
    constexpr double kTaps = Kernel::kSupport.before + 1 + Kernel::kSupport.after;
    const bool keep = work.channels > (K == 2 ? 1 : K);
    const auto& m = work.map.m;
    const double shrinks = std::fabs(m[0][0] * m[1][1] - m[0][1] * m[1][0]);
    Shape best{0, 0};
    double least = kWorst;
    for (const int w : kWidths)
        for (int h = kMaxRows; h >= 8; h -= 8) {
            const int most_columns = smaller(w, part.w), most_rows = smaller(h, part.h);
            const int row_pixels = round_up(most_columns, kLanes), pixels = keep ? row_pixels * most_rows : row_pixels;
            if (keep && pixels > kKeptPixels) continue;
            const auto extent = [&](int axis, double columns, double rows) {
                return std::fabs(m[axis][0]) * (columns - 1) + std::fabs(m[axis][1]) * (rows - 1) + kTaps;
            };
            const double box = (extent(0, most_columns, most_rows) + 2) * (extent(1, most_columns, most_rows) + 1);
            if (!(box * K + pixels * Kernel::kWeights <= kFloats)) continue;
            // On average: the last tiles may be smaller.
            const double columns = double(part.w) / ((part.w + w - 1) / w);
            const double rows = double(part.h) / ((part.h + h - 1) / h);
            const double size[2] = {extent(0, columns, rows), extent(1, columns, rows)};
            // What a tile covers of x, and the taps and the rounding to whole vectors around it.
            const double packed = shrinks * columns * rows + kTaps * (size[0] + size[1]) + kLanes / 2 * size[1];
            const double cost = (packed + kSourceRowCost * size[1] + kRowCost * rows + kTileCost) / (columns * rows);
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
