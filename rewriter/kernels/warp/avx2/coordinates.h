#pragma once

#include "warp/avx2/geometry.h"

// First phase: what the taps of each pixel of a tile's row are, as index of the first tap in the box and weights.
namespace warpfuse {
namespace {

// Coordinates of eight pixels of a line, less its offset, brought inside the box.
template <bool Folds>
struct Settler {
    __m256 value, step, rest, low, high, fold_low, fold_high;

    Settler(const BoxAxis& axis, const Lines& lines, int row)
        : value(_mm256_set1_ps(lines.value[row])), step(_mm256_set1_ps(lines.step)), rest(_mm256_set1_ps(lines.rest)) {
        const __m256 offset = _mm256_set1_ps(lines.offset[row]);
        low = _mm256_sub_ps(_mm256_set1_ps(axis.low), offset);
        high = _mm256_sub_ps(_mm256_set1_ps(axis.high), offset);
        fold_low = _mm256_sub_ps(_mm256_set1_ps(axis.fold_low), offset);
        fold_high = _mm256_sub_ps(_mm256_set1_ps(axis.fold_high), offset);
    }

    __m256 at(__m256 k) const {
        __m256 p = _mm256_fmadd_ps(k, step, _mm256_fmadd_ps(k, rest, value));
        if constexpr (Folds) {
            p = _mm256_add_ps(fold_low, absolute(_mm256_sub_ps(p, fold_low)));
            p = _mm256_sub_ps(fold_high, absolute(_mm256_sub_ps(fold_high, p)));
        }
        return clamp(p, low, high);
    }
};

template <bool Folds, class Each>
inline void along(const BoxAxis (&axes)[2], const Lines (&lines)[2], int row, int count, Each&& each) {
    const Settler<Folds> x(axes[0], lines[0], row), y(axes[1], lines[1], row);
    __m256 k = _mm256_sub_ps(lane_numbers(), _mm256_set1_ps(float(count / 2)));
    for (int at = 0; at < count; at += kLanes, k = _mm256_add_ps(k, _mm256_set1_ps(kLanes))) each(at, x.at(k), y.at(k));
}

// Calls each(k, x, y) for every eight pixels of a row, with coordinates that lack the lines' offsets.
template <class Each>
inline void along(const BoxAxis (&axes)[2], const Lines (&lines)[2], int row, int count, Each&& each) {
    if (axes[0].folds || axes[1].folds)
        along<true>(axes, lines, row, count, each);
    else
        along<false>(axes, lines, row, count, each);
}

} // namespace
} // namespace warpfuse
