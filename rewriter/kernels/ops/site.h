#pragma once

#include <string>

#include "abi/ort_custom_op.h"

namespace warpfuse {

// A node of the model, as its errors name it: custom.ops::Rot90 'node': what is wrong.
class Site {
public:
    Site(const ort::Api& api, const char* op, const ort::KernelInfo* info);

    const ort::Api& api() const { return api_; }
    [[gnu::format(printf, 2, 3)]] ort::Status* error(const char* format, ...) const;

private:
    const ort::Api& api_;
    std::string name_; // custom.ops::Rot90 'node'
};

} // namespace warpfuse
