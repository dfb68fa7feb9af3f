#pragma once

#include <cstdint>

namespace warpfuse {

// Not std::min and std::max: of those, the linker might give everyone the copies compiled for a vector extension.
static inline std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
static inline std::int64_t most(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

} // namespace warpfuse
