#pragma once

#include "abi/ort_custom_op.h"
#include "turn/turn.h"

namespace warpfuse {

// Rot90 of what has no bytes of its own, element by element. Not fast: it is here because a registered operator is
// asked for every type, and a model must not fail for it.

// Strings, through the runtime; the pointers of the job are not used.
ort::Status* rotate_strings(const ort::Api& api, const TurnJob& job, const ort::Value* x, ort::Value* y);

// Elements of 4 bits, two to a byte, the first in the low half.
void rotate_nibbles(const TurnJob& job);

} // namespace warpfuse
