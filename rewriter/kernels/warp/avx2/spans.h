#pragma once

#include "warp/avx2/geometry.h"

// Which columns of each row of its box a tile reads: a tile that is turned leaves the corners of its box unread.
namespace warpfuse {
namespace {

class Spans {
public:
    // A row is read by the pixels whose y is less than rows_above above it, or less than rows_below below.
    Spans(const PixelMap& map, const Tile& tile, const BoxAxis (&axes)[2], Support support, int rows_above,
          int rows_below)
        : width_(axes[0].size), before_(support.before), after_(support.after) {
        const BoxAxis& x = axes[0];
        const BoxAxis& y = axes[1];
        const double across[2] = {x.sign * map.m[0][0], y.sign * map.m[1][0]};
        const double down[2] = {x.sign * map.m[0][1], y.sign * map.m[1][1]};
        const double covered = std::fabs(across[0] * down[1] - across[1] * down[0]) * tile.w * tile.h;
        const bool exact = std::fabs(x.shift) < kExact && std::fabs(y.shift) < kExact;
        const bool whole = x.folds || y.folds || !exact || covered > kFull * x.size * y.size;
        first_ = whole ? y.size : y.clamps_low ? rows_above + rows_below : 0;
        end_ = y.clamps_high ? y.size - 1 - support.before - support.after : y.size;
        const double corner_x = x.sign * coordinate(map, 0, tile.i, tile.j) + x.shift - double(x.origin);
        const double corner_y = y.sign * coordinate(map, 1, tile.i, tile.j) + y.shift - double(y.origin);
        const double top = -rows_above - kSlack - corner_y, bottom = rows_below + kSlack - corner_y;
        sides_[0] = sides(down, across, tile.w - 1, corner_x, top, bottom);
        sides_[1] = sides(across, down, tile.h - 1, corner_x, top, bottom);
    }

    // Of a row of the box: columns from .. to - 1, all of them where coordinates of other rows are moved to this one.
    void columns(int row, int& from, int& to) const {
        from = 0;
        to = width_;
        if (row < first_ || row >= end_) return;
        const double left = larger(sides_[0].left + sides_[0].slope * row, sides_[1].left + sides_[1].slope * row);
        const double right = smaller(sides_[0].right + sides_[0].slope * row, sides_[1].right + sides_[1].slope * row);
        const double first = before_, last = width_ - 1 - after_;
        from = int(smaller(larger(left, first), last)) - before_;
        to = int(smaller(larger(right, first), last)) + after_ + 1;
    }

private:
    static constexpr double kFull = 0.75; // share of a box from which on it is packed whole
    static constexpr double kExact = 1e9; // larger shifts leave coordinates that depend on how they are computed
    static constexpr double kLevel = 64;  // slope of sides that bound no row

    // Two opposite sides of a tile: the leftmost and the rightmost that they are at the height of row 0.
    struct Sides {
        double slope, left, right;
    };

    static Sides sides(const double (&along)[2], const double (&other)[2], int steps, double corner_x, double top,
                       double bottom) {
        if (!(std::fabs(along[0]) < kLevel * std::fabs(along[1]))) return {0, -4 * kFarthest, 4 * kFarthest};
        const double slope = along[0] / along[1], apart = steps * (other[0] - slope * other[1]);
        return {slope, corner_x + smaller(slope * top, slope * bottom) + smaller(apart, 0.0) - kSlack,
                corner_x + larger(slope * top, slope * bottom) + larger(apart, 0.0) + kSlack};
    }

    Sides sides_[2];
    int width_, before_, after_;
    int first_, end_; // rows of which not all is read
};

} // namespace
} // namespace warpfuse
