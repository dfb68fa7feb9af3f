#include "turn/cells.h"

#include <cstring>

#include "core/cpu.h"
#include "core/half.h"

namespace warpfuse {
namespace {

Kernels kernels_of(Element element) {
#ifdef WARPFUSE_AVX2
    if (vector_path() >= VectorPath::Avx2) return avx2_kernels(element);
#endif
    return portable_kernels(element);
}

Kernels kernels_of(DType dtype) {
    switch (dtype) {
    case DType::Float16: return kernels_of(Element::Float16);
    case DType::BFloat16: return kernels_of(Element::BFloat16);
    case DType::Float32: return kernels_of(Element::Float32);
    case DType::Float64: break;
    }
    return kernels_of(Element::Float64);
}

Kernels kernels_of(std::int64_t bytes) {
    switch (bytes) {
    case 1: return kernels_of(Element::Bytes1);
    case 2: return kernels_of(Element::Bytes2);
    case 3: return kernels_of(Element::Bytes3);
    case 4: return kernels_of(Element::Bytes4);
    case 6: return kernels_of(Element::Bytes6);
    case 8: return kernels_of(Element::Bytes8);
    case 12: return kernels_of(Element::Bytes12);
    case 16: return kernels_of(Element::Bytes16);
    }
    return {};
}

float rounded(float scale, DType dtype) {
    switch (dtype) {
    case DType::Float16: return widen(narrow(scale, Float16{}));
    case DType::BFloat16: return widen(narrow(scale, BFloat16{}));
    case DType::Float32:
    case DType::Float64: break;
    }
    return scale;
}

} // namespace

Cells::Cells(std::int64_t bytes) : bytes_(bytes), elements_(1), scale_(1), kernels_(kernels_of(bytes)) {}

Cells::Cells(std::int64_t count, DType dtype, float scale)
    : bytes_(count * static_cast<std::int64_t>(bytes_of(dtype))), elements_(count), scale_(rounded(scale, dtype)),
      kernels_(kernels_of(dtype)) {}

void Cells::transpose(const Plane& plane, bool stream) const {
    if (elements_ == 1 && kernels_.transpose) {
        kernels_.transpose(plane, scale_, stream);
        return;
    }
    transpose_runs(plane, bytes_);
    if (!kernels_.multiply) return;
    for (std::int64_t i = 0; i < plane.columns; ++i) { // what was just moved is still in the caches
        char* y = plane.y + i * plane.y_pitch;
        kernels_.multiply(y, y, plane.rows * elements_, scale_);
    }
}

void Cells::copy(const char* x, char* y, std::int64_t count) const {
    if (kernels_.multiply)
        kernels_.multiply(x, y, count * elements_, scale_);
    else
        std::memcpy(y, x, static_cast<std::size_t>(count * bytes_));
}

void Cells::reverse(const char* x, char* y, std::int64_t count, bool stream) const {
    if (elements_ == 1 && kernels_.reverse) {
        kernels_.reverse(x, y, count, scale_, stream);
        return;
    }
    reverse_runs(x, y, count, bytes_);
    if (kernels_.multiply) kernels_.multiply(y, y, count * elements_, scale_);
}

} // namespace warpfuse
