#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/pool.h"

// AffineGrid and AffineGridSample as docs/custom_ops.md defines them. Pointers are to dense row-major arrays; the caller
// has checked shapes: every extent fits, theta_batch is n or 1, spatial extents are 1 or more (n and c may be 0).
namespace warpfuse {

enum class Mode { Nearest, Linear, Cubic };
enum class Padding { Zeros, Border, Reflection };

struct Extent {
    std::int64_t d = 1, h = 1, w = 1; // an image of two axes has d = 1
};

struct GridJob {
    DType dtype;
    int axes; // 2 or 3
    bool align_corners;
    const void* theta; // [theta_batch, axes, axes + 1]
    std::int64_t theta_batch;
    std::int64_t n;
    Extent out;
    void* grid; // [n, (d,) h, w, axes]
};

struct SampleJob {
    DType dtype;
    int axes; // 2 or 3; Cubic has 2
    Mode mode;
    Padding padding;
    bool align_corners;      // how a coordinate becomes a pixel of x
    bool grid_align_corners; // how a pixel of y becomes a coordinate
    const void* x;           // [n, c, in]
    const void* theta;       // [theta_batch, axes, axes + 1]
    DType theta_dtype;       // dtype or Float32
    std::int64_t theta_batch;
    std::int64_t n, c;
    Extent in, out;
    void* y; // [n, c, out]
};

void affine_grid(const GridJob& job, const Pool& pool);
void affine_grid_sample(const SampleJob& job, const Pool& pool);

} // namespace warpfuse
