"""The fallback bodies of Rot90 and CustomRotScale: one function for each, whatever turns a model holds.

A quarter turn is a Transpose that swaps the two axes and a flip of the *first* of them, behind the Transpose for one
quarter and before it for three: flipping an outer axis moves whole rows, flipping the innermost one copies element
by element. A half turn is one Slice over both axes, and no Transpose (ONNX Runtime keeps even one that moves nothing).

A model with turns of several kinds needs all of it in one body:

    Transpose(perm_1) -> Slice(.._1) -> Transpose(perm_2) -> Slice(.._2) -> Identity

    turn   perm_1  Slice 1   perm_2  Slice 2      what ONNX Runtime makes of it
    1      swap    -         keep    flip a0      Transpose, Slice
    2      swap    -         swap    flip both    Slice
    3      keep    flip a0   swap    -            Slice, Transpose

It merges adjacent Transposes, drops pairs that cancel, and drops a Slice that takes everything, though only between
two nodes: hence a Transpose before the first and an Identity behind the second. So no turn pays for the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper
from onnxscript import script
from onnxscript.values import Opset

from rewriter.vocabulary import DOMAIN, DOMAIN_VERSION

NONE, ALL = -(2**63), 2**63 - 1  # Slice ends that lie before the first and behind the last element of any axis
OURS = Opset(DOMAIN, DOMAIN_VERSION)


def _ints(*values: int) -> onnx.TensorProto:
    return helper.make_tensor("", onnx.TensorProto.INT64, [len(values)], values)


BACK, BEGIN = _ints(-1), _ints(NONE)  # starts and steps, ends of one flipped axis
BACK_2, BEGIN_2 = _ints(-1, -1), _ints(NONE, NONE)  # of two


def rot90(op: Opset, turns: set[int]) -> onnx.FunctionProto:
    """The body for nodes that make these quarter turns (each of 0..3)."""
    if turns == {1}:
        @script(OURS, default_opset=op)
        def Rot90(x, k: int, axes: Sequence[int], perm: Sequence[int], flip: Sequence[int]):
            back = op.Constant(value=BACK)
            swapped = op.Transpose(x, perm=perm)
            return op.Slice(swapped, back, op.Constant(value=BEGIN), op.Constant(value_ints=flip), back)
    elif turns == {3}:
        @script(OURS, default_opset=op)
        def Rot90(x, k: int, axes: Sequence[int], perm: Sequence[int], flip: Sequence[int]):
            back = op.Constant(value=BACK)
            flipped = op.Slice(x, back, op.Constant(value=BEGIN), op.Constant(value_ints=flip), back)
            return op.Transpose(flipped, perm=perm)
    elif turns == {2}:
        @script(OURS, default_opset=op)
        def Rot90(x, k: int, axes: Sequence[int], perm: Sequence[int], flip: Sequence[int]):
            back = op.Constant(value=BACK_2)
            return op.Slice(x, back, op.Constant(value=BEGIN_2), op.Constant(value_ints=flip), back)
    else:
        @script(OURS, default_opset=op)
        def Rot90(x, k: int, axes: Sequence[int], perm: Sequence[int],
                  perm_1: Sequence[int], starts_1: Sequence[int], ends_1: Sequence[int],
                  axes_1: Sequence[int], steps_1: Sequence[int],
                  perm_2: Sequence[int], starts_2: Sequence[int], ends_2: Sequence[int],
                  axes_2: Sequence[int], steps_2: Sequence[int]):
            first = op.Transpose(x, perm=perm_1)
            second = op.Slice(first, op.Constant(value_ints=starts_1), op.Constant(value_ints=ends_1),
                              op.Constant(value_ints=axes_1), op.Constant(value_ints=steps_1))
            third = op.Transpose(second, perm=perm_2)
            fourth = op.Slice(third, op.Constant(value_ints=starts_2), op.Constant(value_ints=ends_2),
                              op.Constant(value_ints=axes_2), op.Constant(value_ints=steps_2))
            return op.Identity(fourth)
    return Rot90.to_function_proto()


def rot_scale(op: Opset, turns: set[int]) -> onnx.FunctionProto:
    """As `rot90`, then times the factor."""
    if turns == {1}:
        @script(OURS, default_opset=op)
        def CustomRotScale(x, rotations: int, scale_factor: float, dims: str,
                           perm: Sequence[int], dtype: int, flip: Sequence[int]):
            back = op.Constant(value=BACK)
            swapped = op.Transpose(x, perm=perm)
            turned = op.Slice(swapped, back, op.Constant(value=BEGIN), op.Constant(value_ints=flip), back)
            return op.Mul(turned, op.Cast(op.Constant(value_float=scale_factor), to=dtype))
    elif turns == {3}:
        @script(OURS, default_opset=op)
        def CustomRotScale(x, rotations: int, scale_factor: float, dims: str,
                           perm: Sequence[int], dtype: int, flip: Sequence[int]):
            back = op.Constant(value=BACK)
            flipped = op.Slice(x, back, op.Constant(value=BEGIN), op.Constant(value_ints=flip), back)
            turned = op.Transpose(flipped, perm=perm)
            return op.Mul(turned, op.Cast(op.Constant(value_float=scale_factor), to=dtype))
    elif turns == {2}:
        @script(OURS, default_opset=op)
        def CustomRotScale(x, rotations: int, scale_factor: float, dims: str,
                           perm: Sequence[int], dtype: int, flip: Sequence[int]):
            back = op.Constant(value=BACK_2)
            turned = op.Slice(x, back, op.Constant(value=BEGIN_2), op.Constant(value_ints=flip), back)
            return op.Mul(turned, op.Cast(op.Constant(value_float=scale_factor), to=dtype))
    else:
        @script(OURS, default_opset=op)
        def CustomRotScale(x, rotations: int, scale_factor: float, dims: str, perm: Sequence[int], dtype: int,
                           perm_1: Sequence[int], starts_1: Sequence[int], ends_1: Sequence[int],
                           axes_1: Sequence[int], steps_1: Sequence[int],
                           perm_2: Sequence[int], starts_2: Sequence[int], ends_2: Sequence[int],
                           axes_2: Sequence[int], steps_2: Sequence[int]):
            first = op.Transpose(x, perm=perm_1)
            second = op.Slice(first, op.Constant(value_ints=starts_1), op.Constant(value_ints=ends_1),
                              op.Constant(value_ints=axes_1), op.Constant(value_ints=steps_1))
            third = op.Transpose(second, perm=perm_2)
            fourth = op.Slice(third, op.Constant(value_ints=starts_2), op.Constant(value_ints=ends_2),
                              op.Constant(value_ints=axes_2), op.Constant(value_ints=steps_2))
            return op.Mul(fourth, op.Cast(op.Constant(value_float=scale_factor), to=dtype))
    return CustomRotScale.to_function_proto()


def helpers(turn: int, plane: tuple[int, int], rank: int, turns: set[int]) -> dict[str, list[int]]:
    """The attributes that the body for `turns` needs on a node, beside `perm`.

    Args:
        turn: quarter turns of this node, 0..3.
        plane: its two axes, ascending.
        rank: of its input.
    """
    if turns == {2}:
        return {"flip": list(plane)}
    if turns in ({1}, {3}):
        return {"flip": [plane[0]]}
    swap, keep = swapped(plane, rank), list(range(rank))
    first, before, second, after = {
        0: (swap, (), swap, ()),
        1: (swap, (), keep, plane[:1]),
        2: (swap, (), swap, plane),
        3: (keep, plane[:1], swap, ()),
    }[turn]
    return {"perm_1": first, "perm_2": second, **_slice("1", before), **_slice("2", after)}


def swapped(plane: tuple[int, int], rank: int) -> list[int]:
    """The permutation that swaps two axes."""
    perm = list(range(rank))
    perm[plane[0]], perm[plane[1]] = plane[1], plane[0]
    return perm


def _slice(which: str, axes: Sequence[int]) -> dict[str, list[int]]:
    """The operands of a Slice that reverses `axes`, or takes everything where there are none."""
    n = len(axes)
    rows = {"starts": [-1] * n, "ends": [NONE] * n, "axes": list(axes), "steps": [-1] * n} if n else {
        "starts": [0], "ends": [ALL], "axes": [0], "steps": [1]}
    return {f"{name}_{which}": row for name, row in rows.items()}
