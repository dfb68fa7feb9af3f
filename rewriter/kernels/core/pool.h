#pragma once

#include <cstddef>
#include <type_traits>

namespace warpfuse {

// Who runs the pieces of a kernel's work: ONNX Runtime's own thread pool, or the calling thread.
class Pool {
public:
    using Task = void (*)(void* data, std::size_t index);
    // Runs task(data, 0 .. count - 1), in any order and on any thread, and returns when all have run.
    using Runner = void (*)(void* context, Task task, std::size_t count, void* data);

    Pool() = default; // runs everything on the calling thread
    Pool(Runner runner, void* context) : runner_(runner), context_(context) {}

    // body(index) for each index below count. body must not throw; nothing is allocated.
    template <class Body>
    void each(std::size_t count, Body&& body) const {
        using Plain = std::remove_reference_t<Body>;
        if (!runner_ || count < 2) {
            for (std::size_t i = 0; i < count; ++i) body(i);
            return;
        }
        runner_(context_, [](void* data, std::size_t i) { (*static_cast<Plain*>(data))(i); }, count,
                const_cast<void*>(static_cast<const void*>(&body)));
    }

private:
    Runner runner_ = nullptr;
    void* context_ = nullptr;
};

} // namespace warpfuse
