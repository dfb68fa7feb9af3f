#pragma once

#include <cmath>

#include "warp/avx2/vec.h"
#include "warp/pixel_map.h"

// Which pixels of x an output tile reads, and the frame in which its coordinates are small and therefore exact.
namespace warpfuse {
namespace {

struct Tile {
    std::int64_t i, j; // its first column and row in y
    int w, h;
};

// One axis of the pixels that a tile reads, and how a coordinate in its frame is brought into it. Pixel 0 of the frame
// is pixel origin of x; the box has pixels 0 .. size - 1, among them every tap of a coordinate in [low, high].
struct BoxAxis {
    std::int64_t origin = 0;
    int size = 0;
    float low = 0, high = 0;
    double sign = 1, shift = 0; // of a mirror image: coordinates are sign * p + shift
    bool folds = false;         // whether the tile crosses one of the two lines that reflect
    bool clamps_low = false, clamps_high = false; // whether coordinates are moved to low, to high
    float fold_low = -1e6f, fold_high = 1e6f;
};

struct Box {
    BoxAxis axes[2];
    int stride; // floats from one row to the next
    float* data;
};

enum class Reach { Inside, Outside, TooFar }; // TooFar: coordinates would be inexact, or fold more than once

// How many taps lie before and after the pixel that a coordinate is in.
struct Support {
    int before, after;
};

constexpr double kSlack = 1.0 / 64; // far more than coordinates err by, in pixels
constexpr double kFarthest = 1024;  // longest stretch of x that a tile may span

// The box of a tile whose coordinates on this axis run from low to high (which are finite), over n pixels.
inline Reach box_axis(double low, double high, std::int64_t n, Padding padding, bool align_corners, Support support,
                      BoxAxis& box) {
    if (!(high - low <= kFarthest)) return Reach::TooFar;
    const double last = double(n - 1);
    const bool extends = support.before > 0; // the box has what lies outside; else coordinates are moved inside
    double least = -1.0 - support.after, most = double(n) + support.before + (extends ? 1 : 0);
    double fold_low = -1e6, fold_high = 1e6;
    box = BoxAxis{};
    if (padding == Padding::Zeros) {
        if (high <= least || low >= most) return Reach::Outside;
    } else if (padding == Padding::Reflection && n > 1) {
        const double edge = align_corners ? 0 : -0.5, span = align_corners ? last : double(n);
        const double period = 2 * span, middle = (low + high) / 2;
        if (high - low > span) return Reach::TooFar;
        box.shift = -std::floor((middle - (edge - span / 2)) / period) * period;
        low += box.shift;
        high += box.shift;
        if (!(low >= edge - span && high <= edge + period)) return Reach::TooFar;
        if (extends) {
            least = low - 1; // no bounds but the slack
            most = high + 1;
        } else {
            const double opposite = edge + span;
            if (high < edge || low > opposite) { // all of it lies in a mirror image
                const double mirror = 2 * (high < edge ? edge : opposite), last_of_it = mirror - low;
                low = mirror - high;
                high = last_of_it;
                box.sign = -1;
                box.shift = mirror - box.shift;
            }
            const bool over_edge = low < edge, over_opposite = high > opposite;
            box.folds = over_edge || over_opposite;
            const double most_folded = over_edge ? larger(high, 2 * edge - low) : high;
            const double least_folded = over_opposite ? smaller(low, 2 * opposite - high) : low;
            // A line that is not crossed is moved to where it is near, and is not crossed either.
            fold_low = over_edge ? edge : std::floor(low) - 1;
            fold_high = over_opposite ? opposite : std::floor(most_folded) + 2;
            low = over_edge ? edge : least_folded;
            high = over_opposite ? opposite : most_folded;
        }
    }
    if (padding != Padding::Zeros && !extends) {
        least = 0;
        most = last;
    }
    const double first = std::floor(smaller(larger(low - kSlack, least), most));
    const double final = std::floor(smaller(larger(high + kSlack, least), most));
    box.clamps_low = low - kSlack < least;
    box.clamps_high = high + kSlack > most;
    box.origin = std::int64_t(first) - support.before;
    box.size = int(final - first) + 1 + support.before + support.after;
    const double offset = double(box.origin);
    box.low = float(larger(least, first) - offset);
    // Below the next whole number, whose taps would begin one pixel further.
    box.high = float(smaller(most - offset, final - offset + 0.999));
    box.fold_low = float(fold_low - offset);
    box.fold_high = float(fold_high - offset);
    return Reach::Inside;
}

// Coordinate on one axis of pixel (i, j) of y.
inline double coordinate(const PixelMap& map, int axis, std::int64_t i, std::int64_t j) {
    return map.m[axis][0] * (double(i) - map.c[0]) + (map.m[axis][1] * (double(j) - map.c[1]) + map.t[axis]);
}

// The extremes of a tile's coordinates on one axis.
inline void tile_range(const PixelMap& map, int axis, const Tile& tile, double& low, double& high) {
    const double along = map.m[axis][0] * (tile.w - 1), down = map.m[axis][1] * (tile.h - 1);
    const double corner = coordinate(map, axis, tile.i, tile.j);
    low = corner + smaller(along, 0.0) + smaller(down, 0.0);
    high = corner + larger(along, 0.0) + larger(down, 0.0);
}

constexpr int kMaxRows = 32; // of a tile

// The coordinates on one axis of the rows of a tile, in the frame of its box. Pixel k of row r, k counted from the
// middle of the row, has offset[r] + value[r] + (step + rest) * k. Only the part after offset, which is whole and even,
// is ever rounded: half a row's length at the most.
struct Lines {
    float step, rest;
    alignas(32) float value[kMaxRows];
    alignas(32) float offset[kMaxRows];

    Lines(const PixelMap& map, int axis, const Tile& tile, const BoxAxis& box) {
        // Of a line that is clamped here every pixel lies outside, and a step that is has no second pixel.
        const double along = smaller(larger(box.sign * map.m[axis][0], -kFarthest), kFarthest);
        step = float(along);
        rest = float(along - double(step));
        const __m256d origin = _mm256_set1_pd(double(box.origin)), reach = _mm256_set1_pd(4 * kFarthest);
        const __m256d start = _mm256_set1_pd(box.sign * coordinate(map, axis, tile.i + tile.w / 2, tile.j) + box.shift);
        const __m256d down = _mm256_set1_pd(box.sign * map.m[axis][1]);
        const __m256d half = _mm256_set1_pd(0.5), two = _mm256_set1_pd(2);
        __m256d r = _mm256_setr_pd(0, 1, 2, 3);
        for (int row = 0; row < tile.h; row += 4, r = _mm256_add_pd(r, _mm256_set1_pd(4))) {
            const __m256d middle = clamp(_mm256_fmadd_pd(r, down, start), _mm256_sub_pd(origin, reach),
                                         _mm256_add_pd(origin, reach));
            const __m256d whole = _mm256_mul_pd(two, _mm256_floor_pd(_mm256_mul_pd(middle, half)));
            _mm_store_ps(value + row, _mm256_cvtpd_ps(_mm256_sub_pd(middle, whole)));
            _mm_store_ps(offset + row, _mm256_cvtpd_ps(_mm256_sub_pd(whole, origin)));
        }
    }
};

} // namespace
} // namespace warpfuse
