#pragma once

#include <cstdint>

#include "abi/ort_custom_op.h"
#include "ops/call.h"

namespace warpfuse {

// A tensor before it exists.
struct OpenTensor {
    ort::ElementType type;
    Shape shape;                    // below 0 where a length is open
    const char* names[Shape::most]; // of such lengths; "" where there is none
};

// Shape inference of one node. Nothing here is an error: what is not known, or is malformed, stays unknown, and is told
// when a session is made or run.
class Inference {
public:
    Inference(const ort::Api& api, const ort::ShapeInferContext* context) : api_(api), context_(context) {}

    bool input(std::size_t index, OpenTensor& tensor) const; // false where nothing is known of it
    bool read(const char* name, std::int64_t& value) const;
    bool read(const char* name, std::int64_t (&values)[2]) const;
    template <std::size_t size>
    bool read(const char* name, char (&text)[size]) const {
        return read(name, ort::AttributeType::String, text, size);
    }
    void output(const OpenTensor& tensor) const;

private:
    bool read(const char* name, ort::AttributeType type, void* data, std::size_t bytes) const;
    bool done(ort::Status* status) const;

    const ort::Api& api_;
    const ort::ShapeInferContext* context_;
};

} // namespace warpfuse
