#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/pool.h"

// Rot90 and CustomRotScale as docs/custom_ops.md defines them, on a tensor seen as [outer, a, middle, b, inner]: the
// plane is (a, b), in the order of the axes in memory, and neighbouring axes outside the plane are one axis each.
namespace warpfuse {

struct TurnJob {
    std::int64_t outer, a, middle, b, inner;
    int k; // quarter turns from a towards b: 1, 2 or 3 (0 copies)
    const void* x;
    void* y; // dense; never overlaps x
};

// Moves elements of 1, 2, 4, 8 or 16 bytes. Any extent may be 0.
void rotate(const TurnJob& job, std::size_t element_bytes, const Pool& pool);

// Moves, then multiplies by scale rounded to dtype; the product is rounded once.
void rotate_scaled(const TurnJob& job, DType dtype, float scale, const Pool& pool);

} // namespace warpfuse
