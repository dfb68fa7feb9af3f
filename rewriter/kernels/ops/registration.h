#pragma once

#include <climits>
#include <new>

#include "ops/attributes.h"
#include "ops/call.h"
#include "ops/inference.h"

namespace warpfuse {

// One operator for one choice of types, as ONNX Runtime is told of it. Registrations of the same name add up: a node
// gets the one whose types it has. Class Kernel is the operator:
//
//   static constexpr const char* name; static constexpr std::size_t inputs;
//   explicit Kernel(Site);
//   ort::Status* read(const Attributes&);        once, when a session is made
//   ort::Status* run(const Call&) const;         for every execution; several may run at the same time
//   static void infer(const Inference&);         the output's shape, as far as it is known before
struct Registration : ort::CustomOp {
    static constexpr std::size_t most_inputs = 3;
    const ort::Api* api;
    ort::ElementType inputs[most_inputs];
    ort::ElementType output;
};

template <class Kernel>
Registration registration(const ort::Api& api, ort::ElementType output, const ort::ElementType (&inputs)[Kernel::inputs]) {
    using Op = const ort::CustomOp*;
    Registration op{};
    op.api = &api;
    op.output = output;
    for (std::size_t i = 0; i < Kernel::inputs; ++i) op.inputs[i] = inputs[i];

    op.version = ort::api_version;
    op.name = [](Op) { return Kernel::name; };
    op.execution_provider = [](Op) -> const char* { return nullptr; };
    op.input_count = [](Op) { return Kernel::inputs; };
    op.input_type = [](Op self, std::size_t i) { return static_cast<const Registration*>(self)->inputs[i]; };
    op.output_count = [](Op) { return std::size_t(1); };
    op.output_type = [](Op self, std::size_t) { return static_cast<const Registration*>(self)->output; };
    op.input_characteristic = [](Op, std::size_t) { return ort::Characteristic::Required; };
    op.output_characteristic = [](Op, std::size_t) { return ort::Characteristic::Required; };
    op.input_memory = [](Op self, std::size_t i) { // sizes are read here, whatever device the rest is on
        return static_cast<const Registration*>(self)->inputs[i] == ort::ElementType::Int64 ? ort::MemoryType::CpuInput
                                                                                           : ort::MemoryType::Default;
    };
    op.create_kernel_v2 = [](Op, const ort::Api* api, const ort::KernelInfo* info, void** out) -> ort::Status* {
        auto* kernel = new (std::nothrow) Kernel(Site(*api, Kernel::name, info));
        if (!kernel) return api->call<ort::CreateStatus>(ort::ErrorCode::Fail, "out of memory");
        if (ort::Status* status = kernel->read(Attributes(kernel->site, info))) {
            delete kernel;
            return status;
        }
        *out = kernel;
        return nullptr;
    };
    op.compute_v2 = [](void* kernel, ort::KernelContext* context) {
        const auto& self = *static_cast<const Kernel*>(kernel);
        return self.run(Call(self.site, context));
    };
    op.destroy_kernel = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
    op.infer_output_shape = [](Op self, ort::ShapeInferContext* context) -> ort::Status* {
        Kernel::infer(Inference(*static_cast<const Registration*>(self)->api, context));
        return nullptr;
    };
    op.first_version = [](Op) { return 1; };
    op.last_version = [](Op) { return INT_MAX; };
    return op;
}

} // namespace warpfuse
