#pragma once

#include "warp/avx2/spans.h"

// The source box of a tile as pixels of K floats, so that one load brings what K planes have at a pixel:
//   K = 2  one channel, rows y and y + 1: a load of two pixels is all of a bilinear footprint
//   K = 4  three or four channels
//   K = 8  five to eight channels
namespace warpfuse {
namespace {

// Where in a box the coordinates of lines that lack their offsets begin.
inline int start_of(const Box& box, const Lines (&lines)[2], int row, int k) {
    return int(lines[1].offset[row]) * box.stride + int(lines[0].offset[row]) * k;
}

inline void store_index(int* to, __m256 position, __m256i start) { // exact: a box is small
    const __m256i index = _mm256_add_epi32(_mm256_cvtps_epi32(position), start);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), index);
}

// Index of a pixel of x that stands for pixel i of an axis of n, or -1 for zero.
inline std::int64_t stand_in(std::int64_t i, std::int64_t n, Padding padding, bool align_corners) {
    if (i >= 0 && i < n) return i;
    if (padding == Padding::Zeros) return -1;
    if (padding == Padding::Border || n == 1) return i < 0 ? 0 : n - 1;
    const std::int64_t period = align_corners ? 2 * n - 2 : 2 * n;
    i = (i % period + period) % period;
    return i < n ? i : align_corners ? period - i : period - 1 - i;
}

constexpr int kRowsAhead = 3; // the processor foresees no walk down the rows of a narrow box

template <int K>
struct Rows {
    const float* at[K]; // null: zeros (K = 2 only)
};

template <int K>
inline void interleave(const __m256 (&v)[K], float* to);

template <>
inline void interleave<2>(const __m256 (&v)[2], float* to) {
    const __m256 low = _mm256_unpacklo_ps(v[0], v[1]), high = _mm256_unpackhi_ps(v[0], v[1]);
    _mm_storeu_ps(to, _mm256_castps256_ps128(low));
    _mm_storeu_ps(to + 4, _mm256_castps256_ps128(high));
    _mm_storeu_ps(to + 8, _mm256_extractf128_ps(low, 1));
    _mm_storeu_ps(to + 12, _mm256_extractf128_ps(high, 1));
}

template <>
inline void interleave<4>(const __m256 (&v)[4], float* to) {
    __m256 p[4] = {v[0], v[1], v[2], v[3]};
    transpose4(p[0], p[1], p[2], p[3]);
    for (int i = 0; i < 4; ++i) {
        _mm_storeu_ps(to + 4 * i, _mm256_castps256_ps128(p[i]));
        _mm_storeu_ps(to + 4 * i + 16, _mm256_extractf128_ps(p[i], 1));
    }
}

// 8x8, the halves swapped by the loads: v[i] holds lanes 0-3 of plane i and of plane i + 4, v[i + 4] their lanes 4-7.
template <>
inline void interleave<8>(const __m256 (&v)[8], float* to) {
    __m256 p[8] = {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
    transpose4(p[0], p[1], p[2], p[3]);
    transpose4(p[4], p[5], p[6], p[7]);
    for (int i = 0; i < 8; ++i) _mm256_storeu_ps(to + 8 * i, p[i]);
}

template <int K>
inline void interleave(const float* from, const std::ptrdiff_t (&ahead)[K], float* to) {
    __m256 v[K];
    if constexpr (K < 8) {
        for (int k = 0; k < K; ++k) v[k] = _mm256_loadu_ps(from + ahead[k]);
    } else {
        for (int k = 0; k < 4; ++k) {
            v[k] = two_halves(from + ahead[k], from + ahead[k + 4]);
            v[k + 4] = two_halves(from + ahead[k] + 4, from + ahead[k + 4] + 4);
        }
    }
    interleave<K>(v, to);
}

template <int K>
inline void pack_columns(const Rows<K>& rows, std::int64_t x, int count, float* to) {
    if constexpr (K == 2) {
        const bool first = rows.at[0], second = rows.at[1];
        const float* a = (first ? rows.at[0] : rows.at[1]) + x;
        const float* b = (second ? rows.at[1] : rows.at[0]) + x;
        const __m256 keep_a = _mm256_castsi256_ps(_mm256_set1_epi32(-int(first)));
        const __m256 keep_b = _mm256_castsi256_ps(_mm256_set1_epi32(-int(second)));
        for (; count > 0; count -= kLanes, a += kLanes, b += kLanes, to += 2 * kLanes) {
            const __m256i mask = lane_mask(count);
            const __m256 va = count >= kLanes ? _mm256_loadu_ps(a) : _mm256_maskload_ps(a, mask);
            const __m256 vb = count >= kLanes ? _mm256_loadu_ps(b) : _mm256_maskload_ps(b, mask);
            interleave<2>({_mm256_and_ps(va, keep_a), _mm256_and_ps(vb, keep_b)}, to);
        }
    } else {
        for (; count >= kLanes; count -= kLanes, x += kLanes, to += K * kLanes) {
            __m256 v[K];
            if constexpr (K == 4)
                for (int k = 0; k < K; ++k) v[k] = _mm256_loadu_ps(rows.at[k] + x);
            else
                for (int k = 0; k < 4; ++k) {
                    v[k] = two_halves(rows.at[k] + x, rows.at[k + 4] + x);
                    v[k + 4] = two_halves(rows.at[k] + x + 4, rows.at[k + 4] + x + 4);
                }
            interleave<K>(v, to);
        }
        for (; count > 0; --count, ++x, to += K)
            for (int k = 0; k < K; ++k) to[k] = rows.at[k][x];
    }
}

// Columns from .. to - 1 of a box's row. What lies outside x comes from its stand-ins.
template <int K>
inline void pack_row(const Rows<K>& rows, std::int64_t origin, int from, int to, std::int64_t n, Padding padding,
                     bool align_corners, float* row) {
    const int left = int(smaller(larger(-origin, std::int64_t(from)), std::int64_t(to)));
    const int right = int(smaller(larger(n - origin, std::int64_t(left)), std::int64_t(to)));
    pack_columns<K>(rows, origin + left, right - left, row + std::ptrdiff_t(left) * K);
    const auto outside = [&](int column) {
        const std::int64_t x = stand_in(origin + column, n, padding, align_corners);
        for (int k = 0; k < K; ++k) row[column * K + k] = x < 0 || !rows.at[k] ? 0.0f : rows.at[k][x];
    };
    for (int column = from; column < left; ++column) outside(column);
    for (int column = right; column < to; ++column) outside(column);
}

// Fills what is read of a box from `planes` channels of x that are `plane` floats apart. Lanes without a channel repeat
// the first.
template <int K>
inline void pack(const float* x, std::ptrdiff_t plane, int planes, const Extent& in, Padding padding,
                 bool align_corners, const Box& box, const Spans& spans) {
    const BoxAxis& horizontal = box.axes[0];
    const BoxAxis& vertical = box.axes[1];
    const int count = K == 2 ? vertical.size - 1 : vertical.size, wide = round_up(horizontal.size, kLanes);
    std::ptrdiff_t ahead[K]; // of each plane, from the first
    for (int k = 0; k < K; ++k) ahead[k] = K == 2 ? k * in.w : k < planes ? k * plane : 0;
    if (horizontal.origin >= 0 && horizontal.origin + wide <= in.w && vertical.origin >= 0 &&
        vertical.origin + vertical.size <= in.h) {
        const float* row = x + vertical.origin * in.w + horizontal.origin;
        float* to = box.data;
        for (int r = 0; r < count; ++r, row += in.w, to += box.stride) {
            int from, end;
            spans.columns(r, from, end);
            const int columns = round_up(end - from, kLanes);
            from = smaller(from, wide - columns);
            for (int at = from; at < from + columns; at += kLanes) {
                for (int k = 0; k < (K == 2 ? 1 : K); ++k) prefetch(row + at + ahead[k] + kRowsAhead * in.w);
                interleave<K>(row + at, ahead, to + at * K);
            }
        }
        return;
    }
    const auto row_at = [&](std::int64_t y) -> const float* {
        y = stand_in(y, in.h, padding, align_corners);
        return y < 0 ? nullptr : x + y * in.w;
    };
    for (int r = 0; r < count; ++r) {
        int from, end;
        spans.columns(r, from, end);
        float* to = box.data + std::ptrdiff_t(r) * box.stride;
        const std::int64_t y = vertical.origin + r;
        Rows<K> rows;
        rows.at[0] = row_at(y);
        if constexpr (K == 2)
            rows.at[1] = row_at(y + 1);
        else
            for (int k = 1; k < K; ++k) rows.at[k] = rows.at[0] ? rows.at[0] + ahead[k] : nullptr;
        if (rows.at[0] || (K == 2 && rows.at[1])) {
            pack_row<K>(rows, horizontal.origin, from, end, in.w, padding, align_corners, to);
        } else {
            for (int i = from * K; i < end * K; ++i) to[i] = 0;
        }
    }
}

} // namespace
} // namespace warpfuse
