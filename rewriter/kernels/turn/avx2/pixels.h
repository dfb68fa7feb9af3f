#pragma once

#include "turn/avx2/transpose.h"

// Pixels of three channels, of 3, 6 or 12 bytes: 12 bytes of them at a time, in 16. Local to the file that includes it.
namespace warpfuse {
namespace {

constexpr std::int64_t used = 12;  // of 16 bytes
constexpr std::int64_t excess = 4; // read and written beyond them

template <int Bytes>
constexpr Element pixel = Bytes == 3 ? Element::Bytes3 : Bytes == 6 ? Element::Bytes6 : Element::Bytes12;

// What puts byte from(i) to place i of both halves; negative is 0.
template <class From>
inline Vector order(From from) {
    alignas(32) signed char places[32];
    for (int i = 0; i < 32; ++i) places[i] = static_cast<signed char>(from(i % 16));
    return load(reinterpret_cast<const char*>(places));
}

// Whole blocks, as far as neither reads nor writes leave the rows; says how far that was.
template <int Bytes>
Plane transpose_pixel_blocks(const Plane& plane) {
    constexpr int across = used / Bytes, down = 2 * across, padded = 16 / across;
    constexpr std::int64_t tile = 64; // rows: each gives a cache line, which the next columns find in the nearest cache
    const Vector spread = order([](int i) { return i % padded < Bytes ? i / padded * Bytes + i % padded : -1; });
    const Vector close = order([](int i) { return i < used ? i / Bytes * padded + i % Bytes : -1; });
    Plane done = plane;
    done.rows = (plane.rows * Bytes - excess) / (down * Bytes) * down;
    done.columns = (plane.columns * Bytes - excess) / used * across;
    for (std::int64_t top = 0; top < done.rows; top += tile) {
        const std::int64_t bottom = top + tile < done.rows ? top + tile : done.rows;
        for (std::int64_t column = 0; column < done.columns; column += across) {
            for (std::int64_t row = top; row < bottom; row += down) {
                const char* x = plane.x + row * plane.x_pitch + column * Bytes;
                char* y = plane.y + column * plane.y_pitch + row * Bytes;
                prefetch(x + line, plane.x_pitch, down);
                prefetch(y + across * plane.y_pitch, plane.y_pitch, across);
                Vector v[across];
#pragma GCC unroll 4
                for (int i = 0; i < across; ++i) {
                    v[i] = load(x + i * plane.x_pitch, x + (i + across) * plane.x_pitch);
                    v[i] = _mm256_shuffle_epi8(v[i], spread);
                }
                swap_axes<padded>(v);
#pragma GCC unroll 4
                for (int i = 0; i < across; ++i, y += plane.y_pitch) {
                    v[i] = _mm256_shuffle_epi8(v[i], close);
                    _mm_storeu_si128(reinterpret_cast<__m128i*>(y), _mm256_castsi256_si128(v[i]));
                    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + used), _mm256_extracti128_si256(v[i], 1));
                }
            }
        }
    }
    return done;
}

template <int Bytes>
void transpose_pixels(const Plane& plane, float, bool) {
    const Kernels rest = portable_kernels(pixel<Bytes>);
    Plane done = plane;
    done.rows = 0;
    if (plane.rows * Bytes > excess && plane.columns * Bytes > excess) done = transpose_pixel_blocks<Bytes>(plane);
    rest.transpose({plane.x + done.columns * Bytes, plane.x_pitch, plane.y + done.columns * plane.y_pitch,
                    plane.y_pitch, done.rows, plane.columns - done.columns}, 1, false);
    rest.transpose({plane.x + done.rows * plane.x_pitch, plane.x_pitch, plane.y + done.rows * Bytes, plane.y_pitch,
                    plane.rows - done.rows, plane.columns}, 1, false);
}

template <int Bytes>
void reverse_pixels(const char* x, char* y, std::int64_t count, float, bool) {
    const Vector mirror = order([](int i) {
        return i < used ? excess + used - Bytes - i / Bytes * Bytes + i % Bytes : -1;
    });
    std::int64_t left = count * Bytes;
    for (; left >= 2 * used + excess; y += 2 * used, left -= 2 * used) {
        const char* first = x + left - used - excess; // what comes first in y
        const Vector v = _mm256_shuffle_epi8(load(first, first - used), mirror);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(y), _mm256_castsi256_si128(v));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(y + used), _mm256_extracti128_si256(v, 1));
    }
    portable_kernels(pixel<Bytes>).reverse(x, y, left / Bytes, 1, false);
}

} // namespace
} // namespace warpfuse
