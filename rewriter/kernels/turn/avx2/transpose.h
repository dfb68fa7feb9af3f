#pragma once

#include <cstring>

#include "turn/avx2/vector.h"
#include "turn/kernels.h"

// Transposition by tiles as wide and as high as a cache line, so that every line of x is read once and every line of y
// is written whole. Local to the file that includes it.
namespace warpfuse {
namespace {

constexpr int line = 64;

// Where a tile begins in both tensors.
struct Corner {
    const char* x;
    char* y;
};

// v holds rows in pairs, i and i + n, of n elements each; v[c] becomes all rows of column c. Interleaving the upper
// half of the rows with the lower half, as often as halves can be halved, is a transposition.
template <int Bytes>
inline void swap_axes(Vector* v) {
    constexpr int n = 16 / Bytes;
#pragma GCC unroll 2
    for (int round = 1; round < n; round *= 2) {
        Vector zipped[n];
#pragma GCC unroll 2
        for (int i = 0; i < n / 2; ++i) {
            zipped[2 * i] = zip_low<Bytes>(v[i], v[i + n / 2]);
            zipped[2 * i + 1] = zip_high<Bytes>(v[i], v[i + n / 2]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; ++i) v[i] = zipped[i];
    }
}

template <int Bytes>
inline void read_columns(const char* x, std::ptrdiff_t pitch, Vector* v) {
    constexpr int n = 16 / Bytes;
#pragma GCC unroll 4
    for (int i = 0; i < n; ++i) v[i] = load(x + i * pitch, x + (i + n) * pitch);
    swap_axes<Bytes>(v);
}

// 16 bytes of all rows of a tile of 4, 8 or 16 byte elements, to whole lines of y.
template <int Bytes, class Effect, bool Stream>
inline void transpose_columns(const char* x, std::ptrdiff_t x_pitch, char* y, std::ptrdiff_t y_pitch, Effect effect) {
    constexpr int n = 16 / Bytes;
    Vector upper[n], lower[n];
    read_columns<Bytes>(x, x_pitch, upper);
    read_columns<Bytes>(x + 2 * n * x_pitch, x_pitch, lower);
#pragma GCC unroll 4
    for (int c = 0; c < n; ++c, y += y_pitch) {
        store<Stream>(y, effect(upper[c]));
        store<Stream>(y + 32, effect(lower[c]));
    }
}

inline void prefetch(const char* first, std::ptrdiff_t pitch, int count) {
    for (int i = 0; i < count; ++i, first += pitch) _mm_prefetch(first, _MM_HINT_T0);
}

// Interleaves rows until a column of them is 4 bytes: 4 rows of bytes or 2 rows of 2 byte elements.
template <int Bytes>
inline void zip_rows(const char* x, std::ptrdiff_t pitch, char* zipped) {
    Vector* out = reinterpret_cast<Vector*>(zipped);
    if constexpr (Bytes == 2) {
        const Vector a = load(x), b = load(x + pitch);
        out[0] = zip_low<2>(a, b);
        out[1] = zip_high<2>(a, b);
    } else {
        const Vector a = load(x), b = load(x + pitch), c = load(x + 2 * pitch), d = load(x + 3 * pitch);
        const Vector ab = zip_low<1>(a, b), cd = zip_low<1>(c, d);
        out[0] = zip_low<2>(ab, cd);
        out[1] = zip_high<2>(ab, cd);
        const Vector ab_high = zip_high<1>(a, b), cd_high = zip_high<1>(c, d);
        out[2] = zip_low<2>(ab_high, cd_high);
        out[3] = zip_high<2>(ab_high, cd_high);
    }
}

// next is the tile that follows: fetching it meanwhile hides most of the way from the second level cache.
template <class Effect, bool Stream>
inline void transpose_tile(Corner at, Corner next, std::ptrdiff_t x_pitch, std::ptrdiff_t y_pitch, Effect effect) {
    constexpr int bytes = Effect::bytes;
    constexpr int side = line / bytes;
    if constexpr (bytes >= 4) {
#pragma GCC unroll 4
        for (int group = 0; group < 4; ++group) {
            constexpr int lines = side / 4;
            prefetch(next.x + group * lines * x_pitch, x_pitch, lines);
            if (!Stream) prefetch(next.y + group * lines * y_pitch, y_pitch, lines);
            char* y = at.y + group * lines * y_pitch;
            transpose_columns<bytes, Effect, Stream>(at.x + group * 16, x_pitch, y, y_pitch, effect);
        }
    } else {
        constexpr int ways = 4 / bytes;
        constexpr int pitch = ways * line;
        alignas(64) char zipped[16 * pitch];
        for (int i = 0; i < 16; ++i) {
            if (!Stream) prefetch(next.y + i * ways * y_pitch, y_pitch, ways);
            zip_rows<bytes>(at.x + i * ways * x_pitch, x_pitch, zipped + i * pitch);
            zip_rows<bytes>(at.x + i * ways * x_pitch + 32, x_pitch, zipped + i * pitch + pitch / 2);
        }
        // Zipping keeps to halves of 16 bytes, so that every other 16 bytes of what it made follow each other.
        for (int half = 0; half < 4; ++half) {
            const char* from = zipped + (half / 2) * (pitch / 2) + (half % 2) * 16;
            for (int i = 0; i < ways; ++i) {
                const int column = half * side / 4 + i * 4;
                prefetch(next.x + column * x_pitch, x_pitch, 4);
                transpose_columns<4, Effect, Stream>(from + i * 32, pitch, at.y + column * y_pitch, y_pitch, effect);
            }
        }
    }
}

// A tile that the plane does not fill.
template <class Effect>
void transpose_corner(const Plane& plane, Effect effect) {
    constexpr int side = line / Effect::bytes;
    alignas(64) char x[side * line] = {}, y[side * line];
    for (std::int64_t row = 0; row < plane.rows; ++row)
        std::memcpy(x + row * line, plane.x + row * plane.x_pitch, plane.columns * Effect::bytes);
    transpose_tile<Effect, false>({x, y}, {x, y}, line, line, effect);
    for (std::int64_t column = 0; column < plane.columns; ++column)
        std::memcpy(plane.y + column * plane.y_pitch, y + column * line, plane.rows * Effect::bytes);
}

// The last tile of a row or a column is moved back to end with the plane, and does some of its neighbour's again.
template <class Effect, bool Stream>
void transpose_tiles(const Plane& plane, Effect effect) {
    constexpr std::int64_t side = line / Effect::bytes;
    const std::int64_t down = (plane.rows + side - 1) / side, across = (plane.columns + side - 1) / side;
    const auto corner = [&](std::int64_t i, std::int64_t j) {
        const std::int64_t row = i + 1 < down ? i * side : plane.rows - side;
        const std::int64_t column = j + 1 < across ? j * side : plane.columns - side;
        return Corner{plane.x + row * plane.x_pitch + column * Effect::bytes,
                      plane.y + column * plane.y_pitch + row * Effect::bytes};
    };
    Corner at = corner(0, 0);
    for (std::int64_t j = 0; j < across; ++j) {
        for (std::int64_t i = 0; i < down; ++i) {
            const bool last = i + 1 == down;
            const Corner next = !last ? corner(i + 1, j) : j + 1 < across ? corner(0, j + 1) : at;
            transpose_tile<Effect, Stream>(at, next, plane.x_pitch, plane.y_pitch, effect);
            at = next;
        }
    }
}

template <class Effect>
void transpose_corners(const Plane& plane, Effect effect) {
    constexpr std::int64_t side = line / Effect::bytes;
    for (std::int64_t column = 0; column < plane.columns; column += side) {
        for (std::int64_t row = 0; row < plane.rows; row += side) {
            const std::int64_t rows = plane.rows - row, columns = plane.columns - column;
            transpose_corner({plane.x + row * plane.x_pitch + column * Effect::bytes, plane.x_pitch,
                              plane.y + column * plane.y_pitch + row * Effect::bytes, plane.y_pitch,
                              rows < side ? rows : side, columns < side ? columns : side}, effect);
        }
    }
}

template <class Effect>
void transpose(const Plane& plane, float scale, bool stream) {
    constexpr std::int64_t side = line / Effect::bytes;
    const std::int64_t height = plane.rows < side ? plane.rows : side;
    const std::int64_t width = plane.columns < side ? plane.columns : side;
    const Effect effect(scale);
    if (height == side && width == side) {
        stream ? transpose_tiles<Effect, true>(plane, effect) : transpose_tiles<Effect, false>(plane, effect);
        if (stream) _mm_sfence();
        return;
    }
    if constexpr (side > 16) {
        // To copy a row or a column of a corner takes about as long as to move 8 elements one by one.
        if (height * width > 8 * (height + width)) {
            transpose_corners(plane, effect);
            return;
        }
    }
    portable_kernels(Effect::element).transpose(plane, scale, stream);
}

} // namespace
} // namespace warpfuse
