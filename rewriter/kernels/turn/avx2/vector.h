#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "turn/kernels.h"

// 32 bytes at a time. Everything here is local to the file that includes it: see core/half.h for why.
namespace warpfuse {
namespace {

using Vector = __m256i;

inline Vector load(const char* x) { return _mm256_loadu_si256(reinterpret_cast<const Vector*>(x)); }

// The 16 bytes at low, then the 16 at high.
inline Vector load(const char* low, const char* high) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(high));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
}

template <bool Stream = false>
inline void store(char* y, Vector value) {
    if (Stream)
        _mm256_stream_si256(reinterpret_cast<Vector*>(y), value);
    else
        _mm256_storeu_si256(reinterpret_cast<Vector*>(y), value);
}

// Elements of both in turns, in each 16 byte half: those of its first 8 bytes, those of its last 8.
template <int Bytes>
inline Vector zip_low(Vector a, Vector b) {
    if constexpr (Bytes == 1) return _mm256_unpacklo_epi8(a, b);
    if constexpr (Bytes == 2) return _mm256_unpacklo_epi16(a, b);
    if constexpr (Bytes == 4) return _mm256_unpacklo_epi32(a, b);
    return _mm256_unpacklo_epi64(a, b);
}

template <int Bytes>
inline Vector zip_high(Vector a, Vector b) {
    if constexpr (Bytes == 1) return _mm256_unpackhi_epi8(a, b);
    if constexpr (Bytes == 2) return _mm256_unpackhi_epi16(a, b);
    if constexpr (Bytes == 4) return _mm256_unpackhi_epi32(a, b);
    return _mm256_unpackhi_epi64(a, b);
}

template <int Bytes>
inline Vector reversed(Vector v) {
    if constexpr (Bytes == 16) return _mm256_permute4x64_epi64(v, 0x4e);
    if constexpr (Bytes == 8) return _mm256_permute4x64_epi64(v, 0x1b);
    if constexpr (Bytes == 4) return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0));
    const Vector order =
        Bytes == 2 ? _mm256_setr_epi8(14, 15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1,
                                      14, 15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1)
                   : _mm256_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0,
                                      15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, order), 0x4e);
}

// What happens to the elements on their way.
template <int Size>
struct Move {
    static constexpr Element element = Size == 1   ? Element::Bytes1
                                       : Size == 2 ? Element::Bytes2
                                       : Size == 4 ? Element::Bytes4
                                       : Size == 8 ? Element::Bytes8
                                                   : Element::Bytes16;
    static constexpr int bytes = Size;
    explicit Move(float) {}
    Vector operator()(Vector v) const { return v; }
};

struct MultiplyFloat32 {
    static constexpr Element element = Element::Float32;
    static constexpr int bytes = 4;
    __m256 factor;
    explicit MultiplyFloat32(float scale) : factor(_mm256_set1_ps(scale)) {}
    Vector operator()(Vector v) const {
        return _mm256_castps_si256(_mm256_mul_ps(_mm256_castsi256_ps(v), factor));
    }
};

struct MultiplyFloat64 {
    static constexpr Element element = Element::Float64;
    static constexpr int bytes = 8;
    __m256d factor;
    explicit MultiplyFloat64(float scale) : factor(_mm256_set1_pd(scale)) {}
    Vector operator()(Vector v) const {
        return _mm256_castpd_si256(_mm256_mul_pd(_mm256_castsi256_pd(v), factor));
    }
};

// The product of two halves is exact in float32, so that narrowing is the only rounding.
struct MultiplyFloat16 {
    static constexpr Element element = Element::Float16;
    static constexpr int bytes = 2;
    __m256 factor;
    explicit MultiplyFloat16(float scale) : factor(_mm256_set1_ps(scale)) {}
    __m128i multiply(__m128i halves) const {
        return _mm256_cvtps_ph(_mm256_mul_ps(_mm256_cvtph_ps(halves), factor), _MM_FROUND_TO_NEAREST_INT);
    }
    Vector operator()(Vector v) const {
        const __m128i low = multiply(_mm256_castsi256_si128(v));
        return _mm256_inserti128_si256(_mm256_castsi128_si256(low), multiply(_mm256_extracti128_si256(v, 1)), 1);
    }
};

struct MultiplyBFloat16 {
    static constexpr Element element = Element::BFloat16;
    static constexpr int bytes = 2;
    __m256 factor;
    explicit MultiplyBFloat16(float scale) : factor(_mm256_set1_ps(scale)) {}
    // The product, rounded to bfloat16, in the upper halves; the lower halves are left dirty.
    Vector multiply(Vector floats) const {
        const __m256 product = _mm256_mul_ps(_mm256_castsi256_ps(floats), factor);
        const Vector bits = _mm256_castps_si256(product);
        const Vector odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const Vector rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        const __m256 nan = _mm256_cmp_ps(product, product, _CMP_UNORD_Q); // quiet already, and rounding may wrap it
        return _mm256_blendv_epi8(rounded, bits, _mm256_castps_si256(nan));
    }
    Vector operator()(Vector v) const {
        const Vector even = multiply(_mm256_slli_epi32(v, 16));
        const Vector odd = multiply(_mm256_and_si256(v, _mm256_set1_epi32(-0x10000)));
        return _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
    }
};

} // namespace
} // namespace warpfuse
