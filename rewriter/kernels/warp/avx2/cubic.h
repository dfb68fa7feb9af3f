#pragma once

#include "warp/avx2/coordinates.h"
#include "warp/avx2/pack.h"

// Bicubic sampling out of a packed box.
namespace warpfuse {
namespace {

// Distances t + 1, t, 1 - t, 2 - t of the four taps, a = -0.75.
inline void cubic_weights(__m256 t, __m256* w) {
    const __m256 a = _mm256_set1_ps(-0.75f), one = _mm256_set1_ps(1);
    const auto inner = [&](__m256 d) { // (a + 2) d^3 - (a + 3) d^2 + 1
        const __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(1.25f), d, _mm256_set1_ps(-2.25f));
        return _mm256_fmadd_ps(p, _mm256_mul_ps(d, d), one);
    };
    const auto outer = [&](__m256 e) { // of d = e + 1: a e (1 - e)^2
        const __m256 g = _mm256_sub_ps(one, e);
        return _mm256_mul_ps(_mm256_mul_ps(a, e), _mm256_mul_ps(g, g));
    };
    const __m256 u = _mm256_sub_ps(one, t);
    w[0] = outer(t);
    w[1] = inner(t);
    w[2] = inner(u);
    w[3] = outer(u);
}

template <int K>
struct Cubic {
    static constexpr Mode kMode = Mode::Cubic;
    static constexpr Support kSupport{1, 2};
    static constexpr int kWeights = 8; // a pixel

    // Eight pixels at a time: the four weights on x of each, then those on y; pixel by pixel for K = 2.
    static void weigh(const Box& box, const Lines (&lines)[2], int row, int count, int* index, float* weights) {
        const __m256 stride = _mm256_set1_ps(float(box.stride));
        const __m256i start = _mm256_set1_epi32(start_of(box, lines, row, K) - box.stride - K);
        along(box.axes, lines, row, count, [&](int at, __m256 px, __m256 py) {
            const __m256 ix = _mm256_floor_ps(px), iy = _mm256_floor_ps(py);
            store_index(index + at, _mm256_fmadd_ps(iy, stride, _mm256_mul_ps(ix, _mm256_set1_ps(K))), start);
            __m256 w[8];
            cubic_weights(_mm256_sub_ps(px, ix), w);
            cubic_weights(_mm256_sub_ps(py, iy), w + 4);
            if constexpr (K == 2) transpose8(w);
            for (int k = 0; k < 8; ++k) _mm256_storeu_ps(weights + (at + k) * kWeights, w[k]);
        });
    }

    // Eight pixels of y; out[k] is channel k (K = 2 has one).
    static void taps(const Box& box, const int* index, const float* w, __m256* out);
};

template <>
inline void Cubic<2>::taps(const Box& box, const int* index, const float* w, __m256* out) {
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    __m256 sums[8]; // of pixel i, its sixteen products in eight lanes
    for (int i = 0; i < 8; ++i, w += 8) {
        const float* at = box.data + index[i];
        const auto rows = [&](int pair) {
            return _mm256_castpd_ps(_mm256_broadcast_sd(reinterpret_cast<const double*>(w + 4 + 2 * pair)));
        };
        __m256 sum = _mm256_mul_ps(_mm256_loadu_ps(at), rows(0));
        sum = _mm256_fmadd_ps(_mm256_loadu_ps(at + 2 * box.stride), rows(1), sum);
        sums[i] = _mm256_mul_ps(sum, _mm256_permutevar8x32_ps(_mm256_loadu_ps(w), twice));
    }
    transpose8(sums);
    for (int step = 4; step > 0; step /= 2)
        for (int i = 0; i < step; ++i) sums[i] = _mm256_add_ps(sums[i], sums[i + step]);
    out[0] = sums[0];
}

template <>
inline void Cubic<4>::taps(const Box& box, const int* index, const float* w, __m256* out) {
    const auto sum = [&](int i) { // lanes 0-3: what the even columns of taps give, lanes 4-7: the odd ones
        const float* at = box.data + index[i];
        const auto weight = [&](int k) { return _mm256_broadcast_ss(w + 8 * k + i); };
        __m256 left = _mm256_mul_ps(_mm256_loadu_ps(at), weight(4));
        __m256 right = _mm256_mul_ps(_mm256_loadu_ps(at + 8), weight(4));
        for (int row = 1; row < 4; ++row) {
            at += box.stride;
            left = _mm256_fmadd_ps(_mm256_loadu_ps(at), weight(4 + row), left);
            right = _mm256_fmadd_ps(_mm256_loadu_ps(at + 8), weight(4 + row), right);
        }
        left = _mm256_mul_ps(left, _mm256_blend_ps(weight(0), weight(1), 0xf0));
        return _mm256_fmadd_ps(right, _mm256_blend_ps(weight(2), weight(3), 0xf0), left);
    };
    for (int i = 0; i < 4; ++i) {
        const __m256 a = sum(i), b = sum(i + 4);
        out[i] = _mm256_add_ps(_mm256_blend_ps(a, b, 0xf0), _mm256_permute2f128_ps(a, b, 0x21));
    }
    transpose4(out[0], out[1], out[2], out[3]);
}

template <>
inline void Cubic<8>::taps(const Box& box, const int* index, const float* w, __m256* out) {
    for (int i = 0; i < 8; ++i) {
        const auto weight = [&](int k) { return _mm256_broadcast_ss(w + 8 * k + i); };
        const __m256 across[4] = {weight(0), weight(1), weight(2), weight(3)};
        const float* at = box.data + index[i];
        __m256 sum = _mm256_setzero_ps();
        for (int row = 0; row < 4; ++row, at += box.stride) {
            __m256 line = _mm256_mul_ps(_mm256_loadu_ps(at), across[0]);
            for (int column = 1; column < 4; ++column)
                line = _mm256_fmadd_ps(_mm256_loadu_ps(at + 8 * column), across[column], line);
            sum = _mm256_fmadd_ps(line, weight(4 + row), sum);
        }
        out[i] = sum;
    }
    transpose8(out);
}

} // namespace
} // namespace warpfuse
