#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

// Everything below has internal linkage: a function compiled for AVX2 must never be the one that scalar code links to.
namespace warpfuse {
namespace {

constexpr int kLanes = 8;

template <class T>
inline T smaller(T a, T b) {
    return b < a ? b : a;
}

template <class T>
inline T larger(T a, T b) {
    return a < b ? b : a;
}

inline int round_up(int n, int step) {
    return (n + step - 1) / step * step;
}

inline void prefetch(const float* at) {
    _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}

inline void prefetch(const float* at, int count) {
    for (int i = 0; i < count; i += 16) prefetch(at + i);
}

// NaN becomes low: both instructions return their second operand when the first is NaN.
inline __m256 clamp(__m256 p, __m256 low, __m256 high) {
    return _mm256_min_ps(_mm256_max_ps(p, low), high);
}

inline __m256d clamp(__m256d p, __m256d low, __m256d high) {
    return _mm256_min_pd(_mm256_max_pd(p, low), high);
}

inline __m256 absolute(__m256 p) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), p);
}

inline __m256 lane_numbers() {
    return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
}

// The first count lanes.
inline __m256i lane_mask(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// Streams: past the caches, to an aligned address.
template <bool Streams>
inline void store(float* at, __m256 v) {
    if constexpr (Streams)
        _mm256_stream_ps(at, v);
    else
        _mm256_storeu_ps(at, v);
}

inline void store(float* at, __m256 v, int count) {
    if (count >= kLanes)
        _mm256_storeu_ps(at, v);
    else
        _mm256_maskstore_ps(at, lane_mask(count), v);
}

// Each 128-bit lane of r0 .. r3 is a row of a 4x4 matrix; so are its columns afterwards.
inline void transpose4(__m256& r0, __m256& r1, __m256& r2, __m256& r3) {
    const __m256 low01 = _mm256_unpacklo_ps(r0, r1), low23 = _mm256_unpacklo_ps(r2, r3);
    const __m256 high01 = _mm256_unpackhi_ps(r0, r1), high23 = _mm256_unpackhi_ps(r2, r3);
    r0 = _mm256_shuffle_ps(low01, low23, 0x44);
    r1 = _mm256_shuffle_ps(low01, low23, 0xee);
    r2 = _mm256_shuffle_ps(high01, high23, 0x44);
    r3 = _mm256_shuffle_ps(high01, high23, 0xee);
}

inline __m256 two_halves(const float* low, const float* high) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}

inline void transpose8(__m256* r) {
    __m256 low[4], high[4];
    for (int i = 0; i < 4; ++i) {
        low[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        high[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    transpose4(low[0], low[1], low[2], low[3]);
    transpose4(high[0], high[1], high[2], high[3]);
    for (int i = 0; i < 4; ++i) {
        r[i] = low[i];
        r[i + 4] = high[i];
    }
}

} // namespace
} // namespace warpfuse
