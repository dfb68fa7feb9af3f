#pragma once

#include "ops/attributes.h"
#include "ops/call.h"
#include "ops/inference.h"
#include "ops/plane.h"

namespace warpfuse {

struct Rot90Op {
    static constexpr const char* name = "Rot90";
    static constexpr std::size_t inputs = 1;

    explicit Rot90Op(Site where) : site(std::move(where)) {}
    ort::Status* read(const Attributes& attributes);
    ort::Status* run(const Call& call) const;
    static void infer(const Inference& inference);

    Site site;
    Plane plane;
};

struct CustomRotScaleOp {
    static constexpr const char* name = "CustomRotScale";
    static constexpr std::size_t inputs = 1;

    explicit CustomRotScaleOp(Site where) : site(std::move(where)) {}
    ort::Status* read(const Attributes& attributes);
    ort::Status* run(const Call& call) const;
    static void infer(const Inference& inference);

    Site site;
    Plane plane;
    float scale = 1;
};

} // namespace warpfuse
