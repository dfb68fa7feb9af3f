#include <algorithm>
#include <cstring>

#include "core/half.h"
#include "turn/kernels.h"

namespace warpfuse {
namespace {

template <int Size>
struct Bytes {
    char bytes[Size];
};

template <class T>
struct Move {
    using Value = T;
    explicit Move(float) {}
    T operator()(T value) const { return value; }
};

template <class T>
struct Multiply {
    using Value = T;
    RealOf<T> factor;
    explicit Multiply(float scale) : factor(scale) {}
    T operator()(T value) const { return narrow(widen(value) * factor, T{}); }
};

template <class Effect>
void put(const char* x, char* y, Effect effect) {
    typename Effect::Value value;
    std::memcpy(&value, x, sizeof value);
    value = effect(value);
    std::memcpy(y, &value, sizeof value);
}

template <class Effect>
void transpose(const Plane& plane, float scale, bool) {
    constexpr std::int64_t bytes = sizeof(typename Effect::Value);
    constexpr std::int64_t side = 64 / bytes; // whole cache lines of either tensor
    const Effect effect(scale);
    for (std::int64_t left = 0; left < plane.columns; left += side) {
        const std::int64_t right = std::min(left + side, plane.columns);
        for (std::int64_t top = 0; top < plane.rows; top += side) {
            const std::int64_t bottom = std::min(top + side, plane.rows);
            for (std::int64_t column = left; column < right; ++column) {
                const char* x = plane.x + top * plane.x_pitch + column * bytes;
                char* y = plane.y + column * plane.y_pitch + top * bytes;
                for (std::int64_t row = top; row < bottom; ++row, x += plane.x_pitch, y += bytes) put(x, y, effect);
            }
        }
    }
}

template <class Effect>
void reverse(const char* x, char* y, std::int64_t count, float scale, bool) {
    constexpr std::int64_t bytes = sizeof(typename Effect::Value);
    const Effect effect(scale);
    for (std::int64_t i = 0; i < count; ++i) put(x + (count - 1 - i) * bytes, y + i * bytes, effect);
}

template <class Effect>
void multiply(const char* x, char* y, std::int64_t count, float scale) {
    constexpr std::int64_t bytes = sizeof(typename Effect::Value);
    const Effect effect(scale);
    for (std::int64_t i = 0; i < count; ++i) put(x + i * bytes, y + i * bytes, effect);
}

template <int Size>
constexpr Kernels moving = {transpose<Move<Bytes<Size>>>, reverse<Move<Bytes<Size>>>, nullptr};
template <class T>
constexpr Kernels multiplying = {transpose<Multiply<T>>, reverse<Multiply<T>>, multiply<Multiply<T>>};

} // namespace

Kernels portable_kernels(Element element) {
    switch (element) {
    case Element::Bytes1: return moving<1>;
    case Element::Bytes2: return moving<2>;
    case Element::Bytes3: return moving<3>;
    case Element::Bytes4: return moving<4>;
    case Element::Bytes6: return moving<6>;
    case Element::Bytes8: return moving<8>;
    case Element::Bytes12: return moving<12>;
    case Element::Bytes16: return moving<16>;
    case Element::Float16: return multiplying<Float16>;
    case Element::BFloat16: return multiplying<BFloat16>;
    case Element::Float32: return multiplying<float>;
    case Element::Float64: break;
    }
    return multiplying<double>;
}

} // namespace warpfuse
