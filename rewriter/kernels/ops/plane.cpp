#include "ops/plane.h"

#include <cstdlib>
#include <cstring>

namespace warpfuse {
namespace {

// One axis, with spaces around it, up to `stop`. Moves `text` behind it.
bool parse_axis(const char*& text, char stop, std::int64_t& axis) {
    static constexpr struct {
        const char* name;
        std::int64_t axis;
    } named[] = {{"width", -1}, {"height", -2}, {"depth", -3}};
    text += std::strspn(text, " \t");
    bool found = false;
    for (const auto& candidate : named) {
        const std::size_t length = std::strlen(candidate.name);
        if (std::strncmp(text, candidate.name, length) == 0) {
            axis = candidate.axis;
            text += length;
            found = true;
            break;
        }
    }
    if (!found) {
        char* end = nullptr;
        axis = std::strtoll(text, &end, 10);
        if (end == text) return false;
        text = end;
    }
    text += std::strspn(text, " \t");
    return *text == stop;
}

} // namespace

bool Plane::parse(const char* dims) {
    const char* text = dims;
    if (!parse_axis(text, ',', axes[0])) return false;
    ++text;
    return parse_axis(text, '\0', axes[1]);
}

bool Plane::settle(std::size_t rank) {
    const auto count = std::int64_t(rank);
    for (std::int64_t& axis : axes) {
        if (axis < -count || axis >= count) return false;
        if (axis < 0) axis += count;
    }
    if (axes[0] == axes[1]) return false;
    k = ((k % 4) + 4) % 4;
    if (axes[0] > axes[1]) { // from b towards a is backwards
        const std::int64_t first = axes[0];
        axes[0] = axes[1];
        axes[1] = first;
        k = (4 - k) % 4;
    }
    return true;
}

TurnJob Plane::job(const Shape& shape) const {
    const auto product = [&shape](std::int64_t from, std::int64_t to) {
        std::int64_t length = 1;
        for (std::int64_t i = from; i < to; ++i) length *= shape.dims[i];
        return length;
    };
    TurnJob job{};
    job.outer = product(0, axes[0]);
    job.a = shape.dims[axes[0]];
    job.middle = product(axes[0] + 1, axes[1]);
    job.b = shape.dims[axes[1]];
    job.inner = product(axes[1] + 1, std::int64_t(shape.rank));
    job.k = int(k);
    return job;
}

} // namespace warpfuse
