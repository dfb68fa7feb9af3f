#pragma once

#include "ops/call.h"
#include "warp/warp.h"

namespace warpfuse {

// What theta and size say together, for both grid operators.
struct Geometry {
    int axes; // 2 or 3
    std::int64_t theta_batch;
    std::int64_t n; // of the grid, by the batch rule
    Extent out;

    // Checks shapes and the values of size.
    ort::Status* read(const Site& site, const Tensor& theta, const Tensor& size);
};

DType dtype_of(ort::ElementType type); // of the four that these operators are registered for

} // namespace warpfuse
