#pragma once

#include <cstdint>
#include <cstring>

// The 16-bit floating-point types, and every type of the grid operators seen as the one it is computed in. Plain bit
// manipulation that compilers vectorise; exact, also where the thread flushes denormals to zero. The functions are
// static: a file compiled for a vector extension must not lend its copies to the rest of the library.
namespace warpfuse {

struct Float16 {
    std::uint16_t bits;
};

struct BFloat16 {
    std::uint16_t bits;
};

template <class To, class From>
static inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

// By mask: a conditional expression may become a branch, and then the loop around it stays scalar.
static inline std::uint32_t pick(bool condition, std::uint32_t yes, std::uint32_t no) {
    const std::uint32_t mask = std::uint32_t{0} - std::uint32_t{condition};
    return (yes & mask) | (no & ~mask);
}

static inline float widen(float value) { return value; }
static inline double widen(double value) { return value; }

static inline float widen(BFloat16 value) { return bits_as<float>(std::uint32_t{value.bits} << 16); }

static inline float widen(Float16 value) {
    const std::uint32_t sign = (value.bits & 0x8000u) << 16;
    const std::uint32_t rest = (value.bits & 0x7fffu) << 13; // exponent and fraction, at float's places
    const std::uint32_t rebias = 112u << 23;
    const std::uint32_t least = 113u << 23; // 2^-14: what a denormal's fraction is added to
    const std::uint32_t normal = rest + rebias;
    const std::uint32_t special = normal + rebias; // infinity and NaN: float's largest exponent
    const std::uint32_t denormal = bits_as<std::uint32_t>(bits_as<float>(rest + least) - bits_as<float>(least));
    const std::uint32_t finite = pick(rest < (1u << 23), denormal, normal);
    return bits_as<float>(sign | pick(rest >= (31u << 23), special, finite));
}

// narrow(value, T{}) rounds to nearest even.
static inline float narrow(float value, float) { return value; }
static inline double narrow(double value, double) { return value; }

static inline BFloat16 narrow(float value, BFloat16) {
    const std::uint32_t bits = bits_as<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t quiet = (bits >> 16) | 0x40u;
    return {static_cast<std::uint16_t>(pick((bits & 0x7fffffffu) > 0x7f800000u, quiet, rounded))};
}

static inline Float16 narrow(float value, Float16) {
    const std::uint32_t bits = bits_as<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t rest = bits & 0x7fffffffu;
    const std::uint32_t normal = ((rest + 0xfffu + ((rest >> 13) & 1u)) >> 13) - (112u << 10);
    // A float just above 0.5 ends at 2^-24, where float16's denormals end: the addition rounds.
    const std::uint32_t denormal = bits_as<std::uint32_t>(bits_as<float>(rest) + 0.5f) - 0x3f000000u;
    const std::uint32_t quiet = 0x7e00u | ((rest >> 13) & 0x3ffu);
    const std::uint32_t special = pick(rest > 0x7f800000u, quiet, 0x7c00u);
    const std::uint32_t finite = pick(rest < (113u << 23), denormal, normal);
    return {static_cast<std::uint16_t>(sign | pick(rest >= (143u << 23), special, finite))};
}

// The type that T is computed in.
template <class T>
struct Computed {
    using Type = float;
};
template <>
struct Computed<double> {
    using Type = double;
};
template <class T>
using RealOf = typename Computed<T>::Type;

} // namespace warpfuse
