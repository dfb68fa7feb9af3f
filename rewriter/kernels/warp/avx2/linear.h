#pragma once

#include "warp/avx2/coordinates.h"
#include "warp/avx2/pack.h"

// Bilinear sampling out of a packed box.
namespace warpfuse {
namespace {

template <int K>
struct Linear {
    static constexpr Mode kMode = Mode::Linear;
    static constexpr Support kSupport{0, 1};
    static constexpr int kWeights = 4; // a pixel

    // For eight pixels at a time: with K = 8 the weights of the four taps; else how far a pixel lies from the left,
    // from the upper and from the lower taps.
    static void weigh(const Box& box, const Lines (&lines)[2], int row, int count, int* index, float* weights) {
        const __m256i start = _mm256_set1_epi32(start_of(box, lines, row, K));
        const __m256 one = _mm256_set1_ps(1), stride = _mm256_set1_ps(float(box.stride));
        along(box.axes, lines, row, count, [&](int at, __m256 px, __m256 py) {
            const __m256 ix = _mm256_floor_ps(px), iy = _mm256_floor_ps(py);
            const __m256 fx = _mm256_sub_ps(px, ix), fy = _mm256_sub_ps(py, iy), gy = _mm256_sub_ps(one, fy);
            store_index(index + at, _mm256_fmadd_ps(iy, stride, _mm256_mul_ps(ix, _mm256_set1_ps(K))), start);
            float* w = weights + at * kWeights;
            if constexpr (K == 8) {
                const __m256 gx = _mm256_sub_ps(one, fx);
                _mm256_storeu_ps(w, _mm256_mul_ps(gx, gy));
                _mm256_storeu_ps(w + 8, _mm256_mul_ps(fx, gy));
                _mm256_storeu_ps(w + 16, _mm256_mul_ps(gx, fy));
                _mm256_storeu_ps(w + 24, _mm256_mul_ps(fx, fy));
            } else {
                _mm256_storeu_ps(w, fx);
                _mm256_storeu_ps(w + 8, fy);
                _mm256_storeu_ps(w + 16, gy);
            }
        });
    }

    // Eight pixels of y; out[k] is channel k (K = 2 has one).
    static void taps(const Box& box, const int* index, const float* w, __m256* out);
};

template <>
inline void Linear<2>::taps(const Box& box, const int* index, const float* w, __m256* out) {
    const float* at = box.data;
    __m256 upper_left = two_halves(at + index[0], at + index[4]);
    __m256 lower_left = two_halves(at + index[1], at + index[5]);
    __m256 upper_right = two_halves(at + index[2], at + index[6]);
    __m256 lower_right = two_halves(at + index[3], at + index[7]);
    transpose4(upper_left, lower_left, upper_right, lower_right); // a pixel's four taps were one row
    const __m256 one = _mm256_set1_ps(1);
    const __m256 fx = _mm256_loadu_ps(w), fy = _mm256_loadu_ps(w + 8);
    const __m256 gx = _mm256_sub_ps(one, fx), gy = _mm256_sub_ps(one, fy);
    const __m256 upper = _mm256_fmadd_ps(upper_right, fx, _mm256_mul_ps(upper_left, gx));
    const __m256 lower = _mm256_fmadd_ps(lower_right, fx, _mm256_mul_ps(lower_left, gx));
    out[0] = _mm256_fmadd_ps(lower, fy, _mm256_mul_ps(upper, gy));
}

template <>
inline void Linear<4>::taps(const Box& box, const int* index, const float* w, __m256* out) {
    const auto between_rows = [&](int i) { // lanes 0-3 at the left taps, lanes 4-7 at the right ones
        const float* upper = box.data + index[i];
        const __m256 v = _mm256_mul_ps(_mm256_loadu_ps(upper), _mm256_broadcast_ss(w + 16 + i));
        return _mm256_fmadd_ps(_mm256_loadu_ps(upper + box.stride), _mm256_broadcast_ss(w + 8 + i), v);
    };
    const __m256 fx = _mm256_loadu_ps(w), gx = _mm256_sub_ps(_mm256_set1_ps(1), fx);
    const auto two = [&](int i, __m256 g, __m256 f) { // pixels i and i + 4
        const __m256 a = between_rows(i), b = between_rows(i + 4);
        const __m256 left = _mm256_permute2f128_ps(a, b, 0x20), right = _mm256_permute2f128_ps(a, b, 0x31);
        return _mm256_fmadd_ps(right, f, _mm256_mul_ps(left, g));
    };
    out[0] = two(0, _mm256_permute_ps(gx, 0x00), _mm256_permute_ps(fx, 0x00));
    out[1] = two(1, _mm256_permute_ps(gx, 0x55), _mm256_permute_ps(fx, 0x55));
    out[2] = two(2, _mm256_permute_ps(gx, 0xaa), _mm256_permute_ps(fx, 0xaa));
    out[3] = two(3, _mm256_permute_ps(gx, 0xff), _mm256_permute_ps(fx, 0xff));
    transpose4(out[0], out[1], out[2], out[3]);
}

template <>
inline void Linear<8>::taps(const Box& box, const int* index, const float* w, __m256* out) {
    for (int i = 0; i < 8; ++i) {
        const float* upper = box.data + index[i];
        const float* lower = upper + box.stride;
        __m256 sum = _mm256_mul_ps(_mm256_loadu_ps(upper), _mm256_broadcast_ss(w + i));
        sum = _mm256_fmadd_ps(_mm256_loadu_ps(upper + 8), _mm256_broadcast_ss(w + i + 8), sum);
        sum = _mm256_fmadd_ps(_mm256_loadu_ps(lower), _mm256_broadcast_ss(w + i + 16), sum);
        out[i] = _mm256_fmadd_ps(_mm256_loadu_ps(lower + 8), _mm256_broadcast_ss(w + i + 24), sum);
    }
    transpose8(out);
}

} // namespace
} // namespace warpfuse
