#include <algorithm>
#include <cstring>

#include "turn/kernels.h"

namespace warpfuse {
namespace {

struct Pair {
    std::uint64_t low, high;
};

// A run of one to two T: two moves, which overlap where it is shorter than two.
template <class T>
struct Short {
    std::int64_t bytes;
    void operator()(const char* x, char* y) const {
        const std::int64_t second = bytes - static_cast<std::int64_t>(sizeof(T));
        T begin, end;
        std::memcpy(&begin, x, sizeof(T));
        std::memcpy(&end, x + second, sizeof(T));
        std::memcpy(y, &begin, sizeof(T));
        std::memcpy(y + second, &end, sizeof(T));
    }
};

struct Long {
    std::int64_t bytes;
    void operator()(const char* x, char* y) const { std::memcpy(y, x, static_cast<std::size_t>(bytes)); }
};

template <class Body>
void with_move(std::int64_t bytes, const Body& body) {
    if (bytes <= 4)
        body(Short<std::uint16_t>{bytes});
    else if (bytes <= 8)
        body(Short<std::uint32_t>{bytes});
    else if (bytes <= 16)
        body(Short<std::uint64_t>{bytes});
    else if (bytes <= 32)
        body(Short<Pair>{bytes});
    else
        body(Long{bytes});
}

} // namespace

void transpose_runs(const Plane& plane, std::int64_t bytes) {
    with_move(bytes, [&](auto move) {
        const std::int64_t side = std::max<std::int64_t>(1, 256 / move.bytes); // both tiles fit the first level cache
        for (std::int64_t left = 0; left < plane.columns; left += side) {
            const std::int64_t right = std::min(left + side, plane.columns);
            for (std::int64_t top = 0; top < plane.rows; top += side) {
                const std::int64_t bottom = std::min(top + side, plane.rows);
                for (std::int64_t column = left; column < right; ++column) {
                    const char* x = plane.x + top * plane.x_pitch + column * move.bytes;
                    char* y = plane.y + column * plane.y_pitch + top * move.bytes;
                    for (std::int64_t row = top; row < bottom; ++row, x += plane.x_pitch, y += move.bytes) move(x, y);
                }
            }
        }
    });
}

void reverse_runs(const char* x, char* y, std::int64_t count, std::int64_t bytes) {
    with_move(bytes, [&](auto move) {
        for (std::int64_t i = 0; i < count; ++i) move(x + (count - 1 - i) * move.bytes, y + i * move.bytes);
    });
}

} // namespace warpfuse
