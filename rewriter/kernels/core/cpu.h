#pragma once

namespace warpfuse {

enum class VectorPath { Scalar, Neon, Avx2, Avx512 };

// The best path that this library was built with and this CPU (and its operating system) can run. The environment
// variable WARPFUSE_VECTOR_PATH (scalar, neon, avx2, avx512) lowers it, for tests; read once, at first use.
VectorPath vector_path();

} // namespace warpfuse
