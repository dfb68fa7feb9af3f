#pragma once

#include <cstddef>

namespace warpfuse {

// The types the grid operators and CustomRotScale compute with. Rot90 only moves bytes and knows none.
enum class DType { Float32, Float16, BFloat16, Float64 };

constexpr std::size_t bytes_of(DType dtype) {
    return dtype == DType::Float64 ? 8 : dtype == DType::Float32 ? 4 : 2;
}

} // namespace warpfuse
