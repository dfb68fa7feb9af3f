#pragma once

#include <cstring>

#include "turn/avx2/vector.h"

// Elements along memory. Local to the file that includes it.
namespace warpfuse {
namespace {

template <class Effect>
void multiply(const char* x, char* y, std::int64_t count, float scale) {
    const Effect effect(scale);
    const std::int64_t bytes = count * Effect::bytes;
    std::int64_t i = 0;
    for (; i + 32 <= bytes; i += 32) store(y + i, effect(load(x + i)));
    if (i == bytes) return;
    alignas(32) char rest[32] = {};
    std::memcpy(rest, x + i, bytes - i);
    store(rest, effect(load(rest)));
    std::memcpy(y + i, rest, bytes - i);
}

// end is where the elements that come first in y end in x.
template <class Effect, bool Stream>
inline void reverse_vectors(const char* end, char* y, std::int64_t count, Effect effect) {
    constexpr int ahead = 1024;
    for (; count >= 4; count -= 4, y += 128) {
        end -= 128;
        for (int i = 0; i < 128; i += 64) { // no processor follows both by itself as far as this
            _mm_prefetch(end - ahead + i, _MM_HINT_T0);
            if (!Stream) _mm_prefetch(y + ahead + i, _MM_HINT_T0);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) store<Stream>(y + 32 * i, effect(reversed<Effect::bytes>(load(end + 96 - 32 * i))));
    }
    for (; count > 0; --count, y += 32) store<Stream>(y, effect(reversed<Effect::bytes>(load(end -= 32))));
}

template <class Effect>
void reverse(const char* x, char* y, std::int64_t count, float scale, bool stream) {
    const Effect effect(scale);
    const std::int64_t bytes = count * Effect::bytes;
    if (bytes < 32) {
        alignas(32) char all[32] = {};
        std::memcpy(all + 32 - bytes, x, bytes);
        store(all, effect(reversed<Effect::bytes>(load(all))));
        std::memcpy(y, all, bytes);
        return;
    }
    // The ends are done apart, and what lies between them in whole vectors again, aligned in y.
    store(y, effect(reversed<Effect::bytes>(load(x + bytes - 32))));
    store(y + bytes - 32, effect(reversed<Effect::bytes>(load(x))));
    const std::int64_t skipped = 32 - reinterpret_cast<std::uintptr_t>(y) % 32;
    if (skipped % Effect::bytes) {
        reverse_vectors<Effect, false>(x + bytes, y, bytes / 32, effect);
    } else if (stream) {
        reverse_vectors<Effect, true>(x + bytes - skipped, y + skipped, (bytes - skipped) / 32, effect);
        _mm_sfence();
    } else {
        reverse_vectors<Effect, false>(x + bytes - skipped, y + skipped, (bytes - skipped) / 32, effect);
    }
}

} // namespace
} // namespace warpfuse
