#pragma once

#include "warp/warp.h"

namespace warpfuse {

// One batch entry's transform between pixels: pixel i of y has its centre at p = m (i - c) + t in pixels of x, where
// c = (n - 1) / 2 are the middles of y. Both align_corners conventions are inside m; an axis of length 1 sits at its own
// middle, so its column never counts. Axes run x, y[, z]. Composed in double: theta's own rounding is the only error.
//
//   grid coordinate of pixel i:  g = (2 i + 1 - n) / max(n - a, 1)       a: grid_align_corners
//   pixel of coordinate q:       p = q (l - b) / 2 + (l - 1) / 2         b: align_corners, l: the length in x
struct PixelMap {
    double m[3][3] = {};
    double t[3] = {};
    double c[3] = {};

    // theta: [axes, axes + 1], row major.
    template <class Real>
    static PixelMap of(const Real* theta, int axes, const Extent& in, const Extent& out, bool align_corners,
                       bool grid_align_corners) {
        const double ins[3] = {double(in.w), double(in.h), double(in.d)};
        const double outs[3] = {double(out.w), double(out.h), double(out.d)};
        PixelMap map;
        for (int row = 0; row < axes; ++row) {
            const double half = (ins[row] - (align_corners ? 1 : 0)) / 2;
            for (int col = 0; col < axes; ++col) {
                const double span = outs[col] - (grid_align_corners ? 1 : 0);
                map.m[row][col] = half * 2 / (span < 1 ? 1 : span) * double(theta[row * (axes + 1) + col]);
            }
            map.t[row] = half * double(theta[row * (axes + 1) + axes]) + (ins[row] - 1) / 2;
            map.c[row] = (outs[row] - 1) / 2;
        }
        return map;
    }
};

} // namespace warpfuse
