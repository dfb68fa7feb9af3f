#include "core/cpu.h"

#include <cstdlib>
#include <cstring>

#if defined(WARPFUSE_AVX2)
#include <cpuid.h>
#endif

namespace warpfuse {
namespace {

#if defined(WARPFUSE_AVX2)
// Older clangs cannot be asked for f16c by name. That the system saves its registers follows from avx2.
bool has_f16c() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

VectorPath best() {
#if defined(WARPFUSE_NEON)
    return VectorPath::Neon; // every aarch64 CPU has it
#else
#if defined(WARPFUSE_AVX512)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        return VectorPath::Avx512;
    }
#endif
#if defined(WARPFUSE_AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
        return VectorPath::Avx2;
    }
#endif
    return VectorPath::Scalar;
#endif
}

VectorPath chosen() {
    static constexpr struct {
        const char* name;
        VectorPath path;
    } named[] = {{"scalar", VectorPath::Scalar}, {"neon", VectorPath::Neon}, {"avx2", VectorPath::Avx2},
                 {"avx512", VectorPath::Avx512}};
    const VectorPath possible = best();
    const char* wanted = std::getenv("WARPFUSE_VECTOR_PATH");
    for (const auto& [name, path] : named) {
        if (wanted && std::strcmp(wanted, name) == 0 && path < possible) return path;
    }
    return possible;
}

} // namespace

VectorPath vector_path() {
    static const VectorPath path = chosen();
    return path;
}

} // namespace warpfuse
