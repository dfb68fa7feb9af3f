#pragma once

#include "warp/avx2/geometry.h"

// What the tiles of one piece of a job share.
namespace warpfuse {
namespace {

constexpr int kFloats = 40000;    // 156 KB: the stack of any thread that ONNX Runtime is built for holds more
constexpr int kKeptPixels = 4096; // of a tile, whose taps are kept for several groups of channels

// A task's memory, on its stack.
struct Scratch {
    alignas(64) std::int32_t index[kKeptPixels];
    alignas(64) float floats[kFloats + 64]; // weights, then a box, whose last row may be written seven pixels too far
};

inline bool finite(const PixelMap& map, int axis) {
    const double sum = map.m[axis][0] + map.m[axis][1] + map.t[axis];
    return sum - sum == 0;
}

// Some channels of one sample.
struct Work {
    const SampleJob& job;
    PixelMap map;
    const float* x;
    float* y;
    std::int64_t channels;
    std::ptrdiff_t in_plane, out_plane;
    bool streams; // y is too large to stay in the caches, and its rows are aligned

    Work from(std::int64_t c, std::int64_t count) const {
        return {job, map, x + c * in_plane, y + c * out_plane, count, in_plane, out_plane, streams};
    }

    float* out(const Tile& tile, std::int64_t c, int row) const {
        return y + c * out_plane + (tile.j + row) * job.out.w + tile.i;
    }
};

inline void fill_zero(const Work& work, const Tile& tile) {
    for (std::int64_t c = 0; c < work.channels; ++c)
        for (int r = 0; r < tile.h; ++r) {
            float* row = work.out(tile, c, r);
            for (int k = 0; k < tile.w; ++k) row[k] = 0;
        }
}

inline Reach box_axes(const Work& work, const Tile& tile, Support support, BoxAxis (&axes)[2]) {
    const std::int64_t sizes[2] = {work.job.in.w, work.job.in.h};
    Reach reach = Reach::Inside;
    for (int axis = 0; axis < 2; ++axis) {
        double low, high;
        tile_range(work.map, axis, tile, low, high);
        const Reach here =
            box_axis(low, high, sizes[axis], work.job.padding, work.job.align_corners, support, axes[axis]);
        if (here == Reach::Outside) return here;
        if (here == Reach::TooFar) reach = here;
    }
    return reach;
}

struct Shape {
    int w, h;
};

// Calls each(tile) for the tiles of a part of y.
template <class Each>
inline void tiles(const Tile& part, Shape shape, Each&& each) {
    for (int r = 0; r < part.h; r += shape.h)
        for (int k = 0; k < part.w; k += shape.w)
            each(Tile{part.i + k, part.j + r, smaller(shape.w, part.w - k), smaller(shape.h, part.h - r)});
}

} // namespace
} // namespace warpfuse
