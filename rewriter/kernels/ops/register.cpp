#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ops/affine_grid.h"
#include "ops/affine_grid_sample.h"
#include "ops/registration.h"
#include "ops/rot90.h"

#if defined(_WIN32)
#define WARPFUSE_EXPORT __declspec(dllexport)
#else
#define WARPFUSE_EXPORT __attribute__((visibility("default")))
#endif

namespace warpfuse {
namespace {

using ort::ElementType;

// Whether the runtime has our version of the interface. Asked before get_api is, which prints what it does not have.
bool new_enough(const char* version) {
    char* rest = nullptr;
    const long major = std::strtol(version, &rest, 10);
    return major > 1 || (major == 1 && *rest == '.' && std::strtol(rest + 1, nullptr, 10) >= long(ort::api_version));
}

// A node whose types none of these has does not load, whatever functions the model brings. Rot90 moves anything, so
// one registration stands for all types.
std::vector<Registration> every_operator(const ort::Api& api) {
    std::vector<Registration> ops;
    for (const auto type : {ElementType::Float32, ElementType::Float16, ElementType::BFloat16, ElementType::Float64}) {
        ops.push_back(registration<AffineGridOp>(api, type, {type, ElementType::Int64}));
        ops.push_back(registration<AffineGridSampleOp>(api, type, {type, type, ElementType::Int64}));
        if (type != ElementType::Float32) {
            ops.push_back(registration<AffineGridSampleOp>(api, type, {type, ElementType::Float32, ElementType::Int64}));
        }
        ops.push_back(registration<CustomRotScaleOp>(api, type, {type}));
    }
    ops.push_back(registration<Rot90Op>(api, ElementType::Undefined, {ElementType::Undefined}));
    return ops;
}

// custom.ops with every operator. Sessions keep pointers into it for as long as they have this library loaded.
class Domain {
public:
    explicit Domain(const ort::Api& api) : api_(api), ops_(every_operator(api)) {
        ort::Status* status = api.call<ort::CreateCustomOpDomain>("custom.ops", &domain_);
        for (const Registration& op : ops_) {
            if (!status) status = api.call<ort::CustomOpDomain_Add>(domain_, static_cast<const ort::CustomOp*>(&op));
        }
        if (!status) return;
        api.call<ort::ReleaseStatus>(status);
        api.call<ort::ReleaseCustomOpDomain>(domain_);
        domain_ = nullptr;
    }
    Domain(const Domain&) = delete;
    ~Domain() {
        if (domain_) api_.call<ort::ReleaseCustomOpDomain>(domain_);
    }

    ort::Status* add_to(ort::SessionOptions* options) const {
        if (domain_) return api_.call<ort::AddCustomOpDomain>(options, domain_);
        return api_.call<ort::CreateStatus>(ort::ErrorCode::Fail, "onnx-warpfuse kernels: custom.ops cannot be made");
    }

private:
    const ort::Api& api_;
    const std::vector<Registration> ops_;
    ort::CustomOpDomain* domain_ = nullptr;
};

} // namespace
} // namespace warpfuse

extern "C" WARPFUSE_EXPORT warpfuse::ort::Status* RegisterCustomOps(warpfuse::ort::SessionOptions* options,
                                                                    const warpfuse::ort::ApiBase* base) {
    namespace ort = warpfuse::ort;
    const char* version = base->version_string();
    const ort::Api* api = warpfuse::new_enough(version) ? base->get_api(ort::api_version) : nullptr;
    if (!api) {
        char text[128];
        std::snprintf(text, sizeof(text), "onnx-warpfuse kernels need ONNX Runtime 1.17 or newer, this is %s", version);
        // the first version of the table has what it takes to say so, and every runtime offers it
        return base->get_api(1)->call<ort::CreateStatus>(ort::ErrorCode::Fail, static_cast<const char*>(text));
    }
    static const warpfuse::Domain domain(*api);
    return domain.add_to(options);
}
