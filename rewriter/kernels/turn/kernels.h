#pragma once

#include <cstddef>
#include <cstdint>

// What turns are made of. Each vector path has all of it for every Element, and gives the same bits.
namespace warpfuse {

// What moves: bytes as they are, among them pixels of three channels, or a number that is multiplied on the way.
enum class Element {
    Bytes1, Bytes2, Bytes3, Bytes4, Bytes6, Bytes8, Bytes12, Bytes16,
    Float16, BFloat16, Float32, Float64,
};

// y[column][row] = x[row][column]. Pitches are the bytes from one row of x, or of y, to the next: negative ones go
// backwards, and that makes the transposition a quarter turn.
struct Plane {
    const char* x;
    std::ptrdiff_t x_pitch;
    char* y;
    std::ptrdiff_t y_pitch;
    std::int64_t rows, columns; // of x
};

struct Kernels {
    // stream: y is too large for the caches, and every row of it starts and ends at a cache line.
    void (*transpose)(const Plane& plane, float scale, bool stream);
    void (*reverse)(const char* x, char* y, std::int64_t count, float scale, bool stream);
    void (*multiply)(const char* x, char* y, std::int64_t count, float scale); // y may be x; null for mere bytes
};

Kernels portable_kernels(Element element);
Kernels avx2_kernels(Element element);

// The same for runs of any size: elements that stay together, such as the channels of a pixel.
void transpose_runs(const Plane& plane, std::int64_t bytes);
void reverse_runs(const char* x, char* y, std::int64_t count, std::int64_t bytes);

} // namespace warpfuse
