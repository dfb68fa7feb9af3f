#pragma once

#include <cstdint>

#include "core/half.h"
#include "warp/warp.h"

// Which pixels of x make the pixels of a run of y, along one axis. Everything is computed in double, some ten flops a
// pixel that all channels share, so that no error is left to grow with the image. Loops are free of branches and of
// float-to-int conversions: compilers vectorise them, and there is no value that would make one undefined.
namespace warpfuse {
namespace {

constexpr int kRun = 128; // pixels of a row whose taps are computed at once

// Taps is 1 for Nearest, 2 for Linear, 4 for Cubic.
template <class Real, int Taps>
struct AxisTaps {
    // In elements of x from the start of its plane, inside the axis. Negative where the tap is outside and reads as
    // zero; such an offset stays negative when those of the other axes are added.
    std::int64_t offset[Taps][kRun];
    Real weight[Taps][kRun]; // unused where Taps is 1
};

// The coordinate, along one axis of x, of the pixels of a run: p(k) = step * (start + k) + at.
struct Line {
    double step, start, at;
    double length, stride; // of the axis of x, in pixels and in elements
};

constexpr double kFar = 1125899906842624.0;       // 2^50: beyond any image, and its neighbours are still exact
constexpr double kMagic = 6755399441055744.0;     // 1.5 * 2^52: adding it leaves an integer in the low bits
constexpr double kOutside = -281474976710656.0;   // -2^48, below minus any offset, and three of them are exact

// Selection by mask: a conditional expression is a branch where the compiler must respect floating-point traps.
inline double select(bool condition, double yes, double no) {
    const std::int64_t mask = -std::int64_t{condition};
    return bits_as<double>((bits_as<std::int64_t>(yes) & mask) | (bits_as<std::int64_t>(no) & ~mask));
}

inline double nearest_integer(double v) { return (v + kMagic) - kMagic; } // ties to even

inline double floor_of(double v) {
    const double r = nearest_integer(v);
    return r - select(r > v, 1.0, 0.0);
}

inline std::int64_t to_integer(double v) { return bits_as<std::int64_t>(v + kMagic) - bits_as<std::int64_t>(kMagic); }

// lo where v is NaN.
inline double clamped(double v, double lo, double hi) {
    const double low = select(v > lo, v, lo);
    return select(low < hi, low, hi);
}

inline double at(const Line& line, int k) { return clamped(line.step * (line.start + k) + line.at, -kFar, kFar); }

// What padding makes of a coordinate or of the index of a tap.
struct Zeros {
    explicit Zeros(const Line&, bool) {}
    double operator()(double p) const { return p; }
};

struct Border {
    explicit Border(const Line& line, bool) : last(line.length - 1) {}
    double operator()(double p) const { return clamped(p, 0.0, last); }
    double last;
};

// Mirrors between the centres of the outermost pixels, or between their outer edges.
struct Reflection {
    Reflection(const Line& line, bool align_corners)
        : low(align_corners ? 0.0 : -0.5), span(line.length - (align_corners ? 1.0 : 0.0)), border(line, false),
          inverse_period(span > 0 ? 0.5 / span : 0.0) {}
    double operator()(double p) const {
        const double q = p - low;
        const double r = q - 2 * span * floor_of(q * inverse_period);
        const double folded = span - bits_as<double>(bits_as<std::int64_t>(r - span) & INT64_MAX);
        return border(folded + low);
    }
    double low, span;
    Border border;
    double inverse_period;
};

template <class Pad>
constexpr bool kReadsZero = false;
template <>
constexpr bool kReadsZero<Zeros> = true;

template <class Pad>
std::int64_t offset_of(double index, const Line& line) {
    const double offset = clamped(index, 0.0, line.length - 1) * line.stride;
    if (!kReadsZero<Pad>) return to_integer(offset);
    return to_integer(select((index >= 0) & (index < line.length), offset, kOutside));
}

template <class Pad, class Real>
void fill(const Line& line, int count, const Pad pad, AxisTaps<Real, 1>& taps) {
    for (int k = 0; k < count; ++k) taps.offset[0][k] = offset_of<Pad>(nearest_integer(pad(at(line, k))), line);
}

template <class Pad, class Real>
void fill(const Line& line, int count, const Pad pad, AxisTaps<Real, 2>& taps) {
    for (int k = 0; k < count; ++k) {
        const double p = pad(at(line, k));
        const double index = floor_of(p);
        const double fraction = p - index;
        // On the last pixel both taps are that pixel: a weight of zero would make NaN of an infinity there.
        const double part = kReadsZero<Pad> ? fraction : select(index >= line.length - 1, 0.5, fraction);
        taps.offset[0][k] = offset_of<Pad>(index, line);
        taps.offset[1][k] = offset_of<Pad>(index + 1, line);
        taps.weight[0][k] = static_cast<Real>(1 - part);
        taps.weight[1][k] = static_cast<Real>(part);
    }
}

// Keys' cubic convolution with a = -0.75, factored at its zeros. Padding moves each tap, not the coordinate.
template <class Pad, class Real>
void fill(const Line& line, int count, const Pad pad, AxisTaps<Real, 4>& taps) {
    constexpr Real a = Real(-0.75);
    for (int k = 0; k < count; ++k) {
        const double p = at(line, k);
        const double index = floor_of(p);
        for (int tap = 0; tap < 4; ++tap) taps.offset[tap][k] = offset_of<Pad>(pad(index + (tap - 1)), line);
        const Real t = static_cast<Real>(p - index);
        const Real u = static_cast<Real>(1 - (p - index));
        taps.weight[0][k] = a * t * u * u;
        taps.weight[1][k] = u * (1 + t - (a + 2) * t * t);
        taps.weight[2][k] = t * (1 + u - (a + 2) * u * u);
        taps.weight[3][k] = a * u * t * t;
    }
}

// A NaN coordinate counts as far below 0, an infinite one as far out on its side.
template <class Real, int Taps>
void fill_taps(const Line& line, int count, Padding padding, bool align_corners, AxisTaps<Real, Taps>& taps) {
    switch (padding) {
    case Padding::Zeros: return fill(line, count, Zeros(line, align_corners), taps);
    case Padding::Border: return fill(line, count, Border(line, align_corners), taps);
    case Padding::Reflection: return fill(line, count, Reflection(line, align_corners), taps);
    }
}

} // namespace
} // namespace warpfuse
