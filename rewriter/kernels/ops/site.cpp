#include "ops/site.h"

#include <cstdarg>
#include <cstdio>

namespace warpfuse {

Site::Site(const ort::Api& api, const char* op, const ort::KernelInfo* info)
    : api_(api), name_(std::string("custom.ops::") + op) {
    std::size_t size = 0;
    std::string node;
    ort::Status* status = api.call<ort::KernelInfo_GetNodeName>(info, static_cast<char*>(nullptr), &size);
    if (!status && size > 1) {
        node.resize(size); // the terminator included
        status = api.call<ort::KernelInfo_GetNodeName>(info, node.data(), &size);
    }
    if (status) {
        api.call<ort::ReleaseStatus>(status);
    } else if (size > 1) {
        name_.append(" '").append(node.c_str()).append("'");
    }
}

ort::Status* Site::error(const char* format, ...) const {
    char text[512];
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return api_.call<ort::CreateStatus>(ort::ErrorCode::InvalidArgument, (name_ + ": " + text).c_str());
}

} // namespace warpfuse
