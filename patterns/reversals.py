"""What reverses a whole axis at every length: the bounds of a Slice, and the size arithmetic that trying proves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.evaluator import Kind, kind
from rewriter.scopes import Scope

INTEGERS = frozenset({ir.DataType.INT32, ir.DataType.INT64})
# Size arithmetic that is affine, so that the tried sizes prove it, with the operands that must be constant for that.
AFFINE = dict.fromkeys(("Add", "Sub", "Neg", "Cast", "Identity", "Concat", "Constant", "ConstantOfShape", "Expand",
                        "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Shape"), ()) | {
    "Gather": (1,), "Slice": (1, 2, 3, 4), "Split": (1,), "Tile": (1,), "Range": (2,)}
FAR = 2**31 - 1  # a Slice bound beyond any axis, as exporters write it: INT32_MAX, INT64_MAX, their negatives
Dim = int | str


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Start and end of a Slice on an axis of length `dim`, which is a symbol where it is unknown."""

    start: int
    end: int
    dim: Dim

    @property
    def sized(self) -> bool:
        return isinstance(self.dim, int)

    def take_all(self) -> bool:
        return self.start == 0 and (self.end >= FAR or (self.sized and self.end >= self.dim))

    @property
    def first(self) -> int:
        """Index of the first element taken with step -1."""
        return min(self.start + self.dim if self.start < 0 else self.start, self.dim - 1)

    @property
    def stop(self) -> int:
        """Index before which it stops, going down."""
        return max(self.end + self.dim if self.end < 0 else self.end, -1)


def fault(bounds: Sequence[Bounds], axis: int, static: bool) -> str | None:
    """Why a Slice with step -1 does not reverse a whole axis; None if it does.

    Bounds of an axis whose length is not static must lie beyond every length, or at a fixed distance from its end.
    """
    fixed = static and len(set(bounds)) == 1
    for bound in bounds:
        if not bound.sized or (bound.first == bound.dim - 1 and bound.stop == -1):
            continue
        if not fixed:
            return f"has computed bounds that do not reverse all of axis {axis} at length {bound.dim}"
        if bound.first != bound.dim - 1:
            return f"reverses axis {axis} from index {bound.first}, not from its last, {bound.dim - 1}"
        if bound.stop >= bound.first:
            return f"takes nothing of axis {axis}: end {bound.end} means index {bound.stop}"
        dropped = "index 0" if not bound.stop else f"indices 0 to {bound.stop}"
        return f"drops {dropped} of axis {axis}: end {bound.end} stops before"
    if fixed:
        return None
    starts, ends = ({getattr(bound, name) for bound in bounds} for name in ("start", "end"))
    varied = len({bound.dim for bound in bounds}) > 1  # else the trials show nothing
    if starts != {-1} and min(starts) < FAR and not (varied and len({b.start - b.dim for b in bounds}) == 1):
        return f"reverses axis {axis} from index {min(starts)}, not from the last of every length"
    if max(ends) > -FAR and not (varied and len({b.end + b.dim for b in bounds}) == 1):
        return f"reverses axis {axis} up to end {max(ends)}, which is not before the first of every length"
    return None


def is_affine(node: ir.Node, scope: Scope) -> bool:
    """Whether an operator of size arithmetic gives integers that are affine in those it is given."""
    operands = [value for value in node.inputs if value is not None]
    if node.domain != "" or scope.dtype(node.outputs[0]) not in INTEGERS:
        return False
    if node.op_type == "Mul":  # int32 would overflow at lengths that exist
        constant = any(kind(value, scope) is Kind.CONSTANT for value in operands)
        return constant and scope.dtype(node.outputs[0]) == ir.DataType.INT64
    if node.op_type == "Range" and (np.abs(scope.constant(node.inputs[2])) != 1).any():
        return False
    return node.op_type in AFFINE and all(
        kind(value, scope) is Kind.CONSTANT
        for index in AFFINE[node.op_type] for value in node.inputs[index:index + 1] if value is not None)
