#pragma once

#include <cstdint>

#include "abi/ort_custom_op.h"
#include "core/pool.h"
#include "ops/site.h"

namespace warpfuse {

struct Shape {
    static constexpr std::size_t most = 64; // axes; numpy's limit too
    std::int64_t dims[most];
    std::size_t rank = 0;

    bool empty() const; // no element
};

// A shape as text, "[2, 3]"; cut short where it is long.
struct ShapeText {
    explicit ShapeText(const Shape& shape);
    char text[128];
};

struct Tensor {
    const ort::Value* value;
    const void* data; // null for strings
    ort::ElementType type;
    Shape shape;
};

// One execution of a node.
class Call {
public:
    Call(const Site& site, ort::KernelContext* context) : site_(site), context_(context) {}

    const Site& site() const { return site_; }
    Pool pool() const;
    ort::Status* input(std::size_t index, const char* name, Tensor& tensor) const;
    // The only output, allocated. An error where its bytes do not fit the address space; data is null for strings.
    ort::Status* output(const Shape& shape, std::size_t element_bytes, ort::Value*& value, void*& data) const;

private:
    const Site& site_;
    ort::KernelContext* context_;
};

} // namespace warpfuse
