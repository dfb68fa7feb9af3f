"""Flips and transposes that turn a tensor become `custom.ops::Rot90`, with a scalar beside them `CustomRotScale`.

What it finds
    The longest chain of Transposes and flips (Slice with step -1, Gather with reversed indices, ReverseSequence over
    full lengths, Split with its pieces concatenated in reverse), Identity and scalar Mul or Div in between, whose
    product is a rotation by quarter turns in the plane of two axes. Any rank, any dtype, static or dynamic shape.
Why
    A flip of the innermost axis copies element by element, and a chain passes over the tensor once for each node. The
    fallback turns with one Transpose and one flip of an outer axis; a kernel does it in one pass.
Before -> after
    Slice(x, axis 3 reversed), Transpose(0, 1, 3, 2)      ->  Rot90(x)             k = 1, axes = (2, 3)
    Slice(x, axes 2 and 3 reversed), Mul(1.5)             ->  CustomRotScale(x)    rotations = 2, scale_factor = 1.5
    a rotation and NHWC <-> NCHW                          ->  Rot90 and one Transpose
    an anti-transpose                                     ->  Rot90 and a flip of the outer axis
    turned and turned back                                ->  nothing; what is left of other chains, if it is cheaper
When it declines
    Part of an axis reversed, or not provably all of it for every size; a flip alone, a transpose alone, three axes
    flipped; a value inside that others need, if turning from before it costs another pass over a large tensor;
    constants (runtimes fold them). A factor stays outside as the Mul or Div it is if it is no scalar, no float, not
    exact in float32 (a divisor: no power of two), or if a Conv or MatMul beside it takes it in for nothing.
Opsets and runtimes
    Opset 11 and newer (Slice has steps from 10 on); any runtime with model-local functions, or the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx_ir as ir

from patterns.movements import Step, read
from patterns.operators.rot90 import CUSTOM_ROT_SCALE, ROT90, dims_of
from patterns.operators.rot90_bodies import NONE, swapped
from patterns.signed_permutation import SignedPermutation, compose, holds_rotation
from rewriter.builder import Builder
from rewriter.scopes import Scope, is_dead
from rewriter.vocabulary import Match, Miss

FLOATS = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE})
SMALL = 1 << 16  # bytes that another pass moves in a few microseconds
MOST_SHARED = 16  # steps looked at beyond a value that others need
SLICE_OPSET = 10  # from which flips are written with inputs


class Rot90Pattern:
    name = "rot90"
    anchors = frozenset({"Transpose", "Slice", "Gather", "ReverseSequence", "Concat"})
    operators = (ROT90, CUSTOM_ROT_SCALE)
    needs = ()

    def match(self, node: ir.Node, scope: Scope) -> Match | Miss | None:
        last = read(node, scope)
        if isinstance(last, Miss):
            return last if _nearly_turns(node, scope) else None
        if last is None or last.motion is None or _next_motion(last.output, scope):
            return None
        steps, shared = _chain(last, scope)
        source = steps[0].source
        if len(steps[0].motion.perm) < 2 or _is_made_of_constants(source, scope):
            return None
        own = _from_motion(steps[shared:])
        parts = [step.motion for step in own if step.motion]
        total = compose(parts)
        if shared and (match := _returns(steps, scope)):
            return match
        if total.is_identity:
            return _match(own, (), scope) if holds_rotation(parts) else None
        if total.rotation():
            return _match(own, (total,), scope)
        if split := total.rotation_and_layout():
            return _match(own, _in_order(*split), scope)
        if holds_rotation(parts) and (better := _cheaper(parts, total)):
            return _match(own, better, scope)
        if shared:
            wider = _from_motion(steps)
            if compose([step.motion for step in wider if step.motion]).rotation():
                return _across_shared(wider, steps[shared - 1].output, scope)
        above = source.producer()
        before = read(above, scope) if above is not None and above.graph is node.graph else None
        if isinstance(before, Miss):
            return before
        if len(total.flips) > 2 or (len(parts) > 1 and total.flips and total.moved):
            return Miss(f"the chain is no rotation in one plane: {total}", last.output.name or "")
        return None


def _chain(last: Step, scope: Scope) -> tuple[list[Step], int]:
    """The steps that lead to `last`, first one first, and the index of the first behind any value others need."""
    steps, own = [last], None
    while True:
        value = steps[-1].source
        node = value.producer()
        step = read(node, scope) if node is not None and node.graph is last.nodes[0].graph else None
        if not isinstance(step, Step):
            break
        if own is None and not _only_user(value):
            own = len(steps)
        if own is not None and len(steps) - own >= MOST_SHARED:
            break
        steps.append(step)
    while steps[-1].motion is None and (own is None or len(steps) > own):
        if own is None and steps[-1].factor is not None:
            break
        steps.pop()
    own = len(steps) if own is None else own
    return steps[::-1], len(steps) - own


def _from_motion(steps: Sequence[Step]) -> list[Step]:
    first = next(i for i, step in enumerate(steps) if step.motion)
    return list(steps[first:])
