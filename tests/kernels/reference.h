#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/half.h"
#include "warp/warp.h"

// AffineGridSample and AffineGrid by the letter of docs/custom_ops.md: one pixel at a time, in double.
namespace reference {

using namespace warpfuse;

inline double element(const void* data, DType dtype, std::int64_t i) {
    switch (dtype) {
    case DType::Float32: return static_cast<const float*>(data)[i];
    case DType::Float16: return widen(static_cast<const Float16*>(data)[i]);
    case DType::BFloat16: return widen(static_cast<const BFloat16*>(data)[i]);
    case DType::Float64: return static_cast<const double*>(data)[i];
    }
    return 0;
}

inline void put(void* data, DType dtype, std::int64_t i, double value) {
    switch (dtype) {
    case DType::Float32: static_cast<float*>(data)[i] = float(value); break;
    case DType::Float16: static_cast<Float16*>(data)[i] = narrow(float(value), Float16{}); break;
    case DType::BFloat16: static_cast<BFloat16*>(data)[i] = narrow(float(value), BFloat16{}); break;
    case DType::Float64: static_cast<double*>(data)[i] = value; break;
    }
}

inline double unit(std::int64_t i, std::int64_t n, bool aligned) {
    const double span = double(n) - (aligned ? 1 : 0);
    return double(2 * i + 1 - n) / (span < 1 ? 1 : span);
}

// Coordinate c of the grid at pixel (w, h, d), and a bound of what it is summed from.
struct Coordinate {
    double value, size;
};

inline Coordinate grid(const void* theta, DType dtype, std::int64_t batch, int axes, bool aligned, const Extent& out,
                       std::int64_t n, std::int64_t w, std::int64_t h, std::int64_t d, int c) {
    const double at[4] = {unit(w, out.w, aligned), unit(h, out.h, aligned),
                          axes == 3 ? unit(d, out.d, aligned) : 1.0, 1.0};
    const std::int64_t row = ((batch == 1 ? 0 : n) * axes + c) * (axes + 1);
    Coordinate sum{0, 0};
    for (int k = 0; k <= axes; ++k) {
        const double term = element(theta, dtype, row + k) * at[k];
        sum.value += term;
        sum.size += std::fabs(term);
    }
    return sum;
}

inline double padded(double p, std::int64_t length, Padding padding, bool aligned) {
    if (padding == Padding::Zeros) return p;
    const double last = double(length - 1);
    if (padding == Padding::Reflection) {
        const double low = aligned ? 0 : -0.5, span = aligned ? last : double(length);
        if (span == 0) return 0;
        const double q = std::fabs(p - low), rest = std::fmod(q, span);
        p = std::fmod(std::floor(q / span), 2) == 0 ? rest + low : span - rest + low;
    }
    return p < 0 ? 0 : p > last ? last : p;
}

struct Tap {
    std::int64_t index;
    double weight;
};

inline std::vector<Tap> taps(double p, std::int64_t length, Mode mode, Padding padding, bool aligned) {
    if (mode != Mode::Cubic) p = padded(p, length, padding, aligned);
    const double base = mode == Mode::Nearest ? std::nearbyint(p) : std::floor(p);
    const double t = p - base;
    std::vector<Tap> found;
    const auto add = [&](double index, double weight) {
        if (mode == Mode::Cubic) index = padded(index, length, padding, aligned);
        if (index >= 0 && index < double(length)) found.push_back({std::int64_t(index), weight});
    };
    if (mode == Mode::Nearest) {
        add(base, 1);
    } else if (mode == Mode::Linear) {
        add(base, 1 - t);
        if (t > 0) add(base + 1, t);
    } else {
        for (int k = -1; k < 3; ++k) {
            const double a = -0.75, s = std::fabs(t - k);
            add(base + k, s <= 1 ? ((a + 2) * s - (a + 3)) * s * s + 1 : ((a * s - 5 * a) * s + 8 * a) * s - 4 * a);
        }
    }
    return found;
}

} // namespace reference
