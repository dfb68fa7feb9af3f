#pragma once

#include <cstdint>

#include "ops/call.h"
#include "turn/turn.h"

namespace warpfuse {

// Quarter turns in the plane of two axes.
struct Plane {
    std::int64_t k = 1;
    std::int64_t axes[2] = {0, 1};

    // "height,width" and the like, as CustomRotScale's `dims` writes a plane. False where it is malformed.
    bool parse(const char* dims);
    // Makes k one of 0 .. 3 and the axes ascending, from 0 on. False unless they are two distinct axes of that rank.
    bool settle(std::size_t rank);
    // The shape after settled turns.
    template <class Dim>
    void turn(Dim* dims) const {
        if (k % 2 == 0) return;
        const Dim first = dims[axes[0]];
        dims[axes[0]] = dims[axes[1]];
        dims[axes[1]] = first;
    }
    // Settled turns of a shape, seen as [outer, a, middle, b, inner].
    TurnJob job(const Shape& shape) const;
};

} // namespace warpfuse
