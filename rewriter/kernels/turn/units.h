#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/pool.h"

namespace warpfuse {

// An extent cut into pieces of a step each. The last one also takes what remains, so that none is thinner than a step.
struct Pieces {
    Pieces(std::int64_t whole, std::int64_t least)
        : extent(whole), step(least), count(std::max<std::int64_t>(1, whole / least)) {}

    std::int64_t begin(std::int64_t i) const { return i * step; }
    std::int64_t size(std::int64_t i) const { return (i + 1 < count ? begin(i + 1) : extent) - begin(i); }

    std::int64_t extent, step, count;
};

// body(i) for each i below count, in tasks that are worth a thread, whatever the number of threads is.
template <class Body>
void each_unit(std::int64_t count, std::int64_t total_bytes, const Pool& pool, const Body& body) {
    constexpr std::int64_t task_bytes = 512 << 10; // moved in about 50 microseconds
    const std::int64_t tasks_wanted = total_bytes < 2 * task_bytes ? 1 : total_bytes / task_bytes;
    const std::int64_t units = std::max<std::int64_t>(1, count / tasks_wanted);
    pool.each(static_cast<std::size_t>((count + units - 1) / units), [&](std::size_t task) {
        const std::int64_t first = static_cast<std::int64_t>(task) * units;
        for (std::int64_t i = first; i < std::min(first + units, count); ++i) body(i);
    });
}

} // namespace warpfuse
