#pragma once

#include "warp/avx2/cubic.h"
#include "warp/avx2/work.h"

// Any job at all, by gathers from the planes themselves with coordinates in double: for tiles that read too much of x
// to be packed (strong minification), and for the few that lie oddly to the image.
namespace warpfuse {
namespace {

constexpr int kSegment = 64; // pixels of a row done at a time

constexpr int taps_across(Mode mode) {
    return mode == Mode::Nearest ? 1 : mode == Mode::Linear ? 2 : 4;
}

// A row's coordinates on one axis, four pixels at a time, brought to where whole pixels fit an int.
struct AxisRule {
    double low, high, edge, period;
    bool wraps, folds, extends;
    float n;

    AxisRule(std::int64_t size, Mode mode, Padding padding, bool align) : n(float(size)) {
        const double last = double(size - 1);
        const bool free = mode == Mode::Cubic || padding == Padding::Zeros; // coordinates may leave the image
        extends = mode == Mode::Cubic && padding != Padding::Zeros;         // and what is there is some pixel of it
        edge = align ? 0 : -0.5;
        period = 2 * (align ? last : double(size));
        wraps = padding == Padding::Reflection && size > 1;
        folds = wraps && !free;
        low = !free ? 0 : wraps ? edge : -4;
        high = !free ? last : wraps ? edge + period : double(size) + 3;
    }

    __m256d settle(__m256d p) const {
        if (wraps) {
            const __m256d start = _mm256_set1_pd(edge), length = _mm256_set1_pd(period);
            p = _mm256_sub_pd(p, start);
            p = _mm256_fnmadd_pd(_mm256_floor_pd(_mm256_div_pd(p, length)), length, p);
            if (folds) p = _mm256_min_pd(p, _mm256_sub_pd(length, p));
            p = _mm256_add_pd(p, start);
        }
        return clamp(p, _mm256_set1_pd(low), _mm256_set1_pd(high));
    }

    // A tap's pixel, and whether it is one.
    __m256 pixel(__m256 tap, __m256& inside) const {
        const __m256 zero = _mm256_setzero_ps(), last = _mm256_set1_ps(n - 1);
        if (wraps && extends) {
            const __m256 start = _mm256_set1_ps(float(edge)), length = _mm256_set1_ps(float(period));
            tap = _mm256_sub_ps(tap, start);
            tap = _mm256_fnmadd_ps(_mm256_floor_ps(_mm256_div_ps(tap, length)), length, tap);
            tap = _mm256_add_ps(_mm256_min_ps(tap, _mm256_sub_ps(length, tap)), start);
        }
        if (extends) tap = clamp(tap, zero, last);
        inside = _mm256_and_ps(_mm256_cmp_ps(tap, zero, _CMP_GE_OQ), _mm256_cmp_ps(tap, last, _CMP_LE_OQ));
        return tap;
    }
};

// Pixels and weights of the taps of eight pixels on one axis.
template <Mode mode>
struct AxisTaps {
    static constexpr int kTaps = taps_across(mode);
    __m256 at[kTaps], inside[kTaps], weight[kTaps];

    AxisTaps(const AxisRule& rule, __m256d p0, __m256d p1) {
        p0 = rule.settle(p0);
        p1 = rule.settle(p1);
        const auto whole = [](__m256d p) {
            return mode == Mode::Nearest ? _mm256_round_pd(p, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
                                         : _mm256_floor_pd(p);
        };
        const __m256d w0 = whole(p0), w1 = whole(p1);
        const auto join = [](__m256d a, __m256d b) { return _mm256_set_m128(_mm256_cvtpd_ps(b), _mm256_cvtpd_ps(a)); };
        const __m256 first = join(w0, w1), t = join(_mm256_sub_pd(p0, w0), _mm256_sub_pd(p1, w1));
        const __m256 one = _mm256_set1_ps(1);
        if constexpr (mode == Mode::Nearest) {
            weight[0] = one;
        } else if constexpr (mode == Mode::Linear) {
            weight[0] = _mm256_sub_ps(one, t);
            weight[1] = t;
        } else {
            cubic_weights(t, weight);
        }
        for (int k = 0; k < kTaps; ++k) {
            const float offset = float(mode == Mode::Cubic ? k - 1 : k);
            at[k] = rule.pixel(_mm256_add_ps(first, _mm256_set1_ps(offset)), inside[k]);
        }
    }
};

template <Mode mode>
inline void sample_rows(const Work& work, const Tile& tile, Scratch& scratch) {
    constexpr int kTaps = taps_across(mode);
    static_assert(kTaps * kTaps * kSegment <= kKeptPixels && kKeptPixels <= kFloats);
    const SampleJob& job = work.job;
    const PixelMap& map = work.map;
    std::int32_t* const index = scratch.index; // [tap][pixel], -1: outside
    float* const weight = scratch.floats;
    const AxisRule across(job.in.w, mode, job.padding, job.align_corners);
    const AxisRule down(job.in.h, mode, job.padding, job.align_corners);
    const __m256i width = _mm256_set1_epi32(int(job.in.w));
    for (std::int64_t j = tile.j; j < tile.j + tile.h; ++j)
        for (std::int64_t i = tile.i; i < tile.i + tile.w; i += kSegment) {
            const int count = int(smaller(tile.i + tile.w - i, std::int64_t(kSegment)));
            for (int at = 0; at < count; at += kLanes) {
                __m256d p[2][2];
                for (int axis = 0; axis < 2; ++axis) {
                    const __m256d step = _mm256_set1_pd(map.m[axis][0]);
                    const __m256d base = _mm256_set1_pd(map.m[axis][1] * (double(j) - map.c[1]) + map.t[axis]);
                    const __m256d first = _mm256_set1_pd(double(i + at) - map.c[0]);
                    const __m256d k = _mm256_add_pd(first, _mm256_setr_pd(0, 1, 2, 3));
                    p[axis][0] = _mm256_fmadd_pd(k, step, base);
                    p[axis][1] = _mm256_fmadd_pd(_mm256_add_pd(k, _mm256_set1_pd(4)), step, base);
                }
                const AxisTaps<mode> tx(across, p[0][0], p[0][1]), ty(down, p[1][0], p[1][1]);
                for (int r = 0; r < kTaps; ++r) {
                    const __m256i row = _mm256_mullo_epi32(_mm256_cvtps_epi32(ty.at[r]), width);
                    for (int s = 0; s < kTaps; ++s) {
                        const __m256i inside = _mm256_castps_si256(_mm256_and_ps(ty.inside[r], tx.inside[s]));
                        const __m256i pixel = _mm256_add_epi32(row, _mm256_cvtps_epi32(tx.at[s]));
                        const __m256i tap = _mm256_blendv_epi8(_mm256_set1_epi32(-1), pixel, inside);
                        const int slot = (r * kTaps + s) * kSegment + at;
                        _mm256_store_si256(reinterpret_cast<__m256i*>(index + slot), tap);
                        _mm256_store_ps(weight + slot, _mm256_mul_ps(ty.weight[r], tx.weight[s]));
                    }
                }
            }
            for (std::int64_t c = 0; c < work.channels; ++c) {
                const float* plane = work.x + c * work.in_plane;
                float* out = work.y + c * work.out_plane + j * job.out.w + i;
                for (int at = 0; at < count; at += kLanes) {
                    __m256 sum = _mm256_setzero_ps();
                    for (int k = 0; k < kTaps * kTaps; ++k) {
                        const int slot = k * kSegment + at;
                        const __m256i tap = _mm256_load_si256(reinterpret_cast<const __m256i*>(index + slot));
                        const __m256 inside = _mm256_castsi256_ps(_mm256_xor_si256(tap, _mm256_set1_epi32(-1)));
                        const __m256 v = _mm256_mask_i32gather_ps(_mm256_setzero_ps(), plane, tap, inside, 4);
                        sum = kTaps == 1 ? v : _mm256_fmadd_ps(v, _mm256_load_ps(weight + slot), sum);
                    }
                    store(out + at, sum, count - at);
                }
            }
        }
}

} // namespace
} // namespace warpfuse
