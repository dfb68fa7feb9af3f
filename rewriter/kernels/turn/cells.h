#pragma once

#include "core/dtype.h"
#include "turn/kernels.h"

namespace warpfuse {

// How the cells of a tensor move: the runs of elements that stay together in a turn, such as the channels of a pixel.
class Cells {
public:
    // Cells that move as they are.
    explicit Cells(std::int64_t bytes);
    // Cells of count elements each, which are multiplied on their way.
    Cells(std::int64_t count, DType dtype, float scale);

    std::int64_t bytes() const { return bytes_; }

    // stream as in Kernels; only ever a permission.
    void transpose(const Plane& plane, bool stream) const;
    void copy(const char* x, char* y, std::int64_t count) const;
    void reverse(const char* x, char* y, std::int64_t count, bool stream) const;

private:
    std::int64_t bytes_;
    std::int64_t elements_; // of a cell, each as kernels_ takes them
    float scale_;
    Kernels kernels_; // empty where none fits
};

} // namespace warpfuse
