#include "ops/small_elements.h"

namespace warpfuse {
namespace {

// move(from, to) for every element of y in order, until it returns false.
template <class Move>
void each_element(const TurnJob& job, Move&& move) {
    const bool swaps = job.k % 2 != 0;
    const std::int64_t rows = swaps ? job.b : job.a, columns = swaps ? job.a : job.b; // of y
    std::int64_t to = 0;
    for (std::int64_t outer = 0; outer < job.outer; ++outer) {
        for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t middle = 0; middle < job.middle; ++middle) {
                for (std::int64_t column = 0; column < columns; ++column) {
                    std::int64_t i = row, j = column; // where it comes from, along a and b
                    if (job.k == 1) i = column, j = job.b - 1 - row;
                    if (job.k == 2) i = job.a - 1 - row, j = job.b - 1 - column;
                    if (job.k == 3) i = job.a - 1 - column, j = row;
                    std::int64_t from = (((outer * job.a + i) * job.middle + middle) * job.b + j) * job.inner;
                    for (std::int64_t inner = 0; inner < job.inner; ++inner, ++from, ++to) {
                        if (!move(std::size_t(from), std::size_t(to))) return;
                    }
                }
            }
        }
    }
}

ort::Status* copy(const ort::Api& api, const ort::Value* x, std::size_t from, ort::Value* y, std::size_t to) {
    std::size_t length = 0;
    if (ort::Status* status = api.call<ort::GetStringTensorElementLength>(x, from, &length)) return status;
    char* buffer = nullptr;
    if (ort::Status* status = api.call<ort::GetResizedStringTensorElementBuffer>(y, to, length, &buffer)) return status;
    return api.call<ort::GetStringTensorElement>(x, length, from, static_cast<void*>(buffer));
}

} // namespace

ort::Status* rotate_strings(const ort::Api& api, const TurnJob& job, const ort::Value* x, ort::Value* y) {
    ort::Status* status = nullptr;
    each_element(job, [&](std::size_t from, std::size_t to) {
        status = copy(api, x, from, y, to);
        return !status;
    });
    return status;
}

void rotate_nibbles(const TurnJob& job) {
    const auto* x = static_cast<const unsigned char*>(job.x);
    auto* y = static_cast<unsigned char*>(job.y);
    each_element(job, [&](std::size_t from, std::size_t to) {
        const auto nibble = static_cast<unsigned char>(x[from / 2] >> (from % 2 * 4) & 15);
        y[to / 2] = to % 2 ? static_cast<unsigned char>(y[to / 2] | nibble << 4) : nibble;
        return true;
    });
}

} // namespace warpfuse
