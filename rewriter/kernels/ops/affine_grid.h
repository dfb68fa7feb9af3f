#pragma once

#include "ops/attributes.h"
#include "ops/call.h"
#include "ops/inference.h"

namespace warpfuse {

struct AffineGridOp {
    static constexpr const char* name = "AffineGrid";
    static constexpr std::size_t inputs = 2;

    explicit AffineGridOp(Site where) : site(std::move(where)) {}
    ort::Status* read(const Attributes& attributes);
    ort::Status* run(const Call& call) const;
    static void infer(const Inference&) {} // the shape is in the values of `size`, which inference does not see

    Site site;
    bool align_corners = false;
};

} // namespace warpfuse
