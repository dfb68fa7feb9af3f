#pragma once

#include "ops/attributes.h"
#include "ops/call.h"
#include "ops/inference.h"
#include "warp/warp.h"

namespace warpfuse {

struct AffineGridSampleOp {
    static constexpr const char* name = "AffineGridSample";
    static constexpr std::size_t inputs = 3;

    explicit AffineGridSampleOp(Site where) : site(std::move(where)) {}
    ort::Status* read(const Attributes& attributes);
    ort::Status* run(const Call& call) const;
    static void infer(const Inference&) {} // the shape is in the values of `size`, which inference does not see

    Site site;
    Mode mode = Mode::Linear;
    Padding padding = Padding::Zeros;
    bool align_corners = false, grid_align_corners = false;
};

} // namespace warpfuse
