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

from typing import Sequence  # noqa: UP035 (onnxscript takes the other one's aliases for classes on Python 3.10)

import onnx
from onnxscript import OnnxFunction, script
from onnxscript.values import Opset

from patterns.operators.flat import PIECES, flatten, ints
from rewriter.vocabulary import DOMAIN, DOMAIN_VERSION

BEGIN, END = -(2**63), 2**63 - 1  # Slice ends before the first and behind the last element of an axis of any length
OURS = Opset(DOMAIN, DOMAIN_VERSION)
HELPERS = frozenset({"perm", "flip", *(f"{name}_{n}" for name in ("perm", "starts", "ends", "axes", "steps")
                                       for n in (1, 2))})  # attributes that only the bodies read, beside `dtype`


def rot90(op: Opset, turns: set[int], text: str) -> onnx.FunctionProto:
    """The body for nodes that make these quarter turns (each of 0..3), described by `text`."""
    turn = _turn(op, turns)
    if len(turns) == 1 and 0 not in turns:
        @script(OURS, default_opset=op)
        def Rot90(x, k: int, axes: Sequence[int], perm: Sequence[int], flip: Sequence[int]):
            return turn(x, perm=perm, flip=flip)
    else:
        @script(OURS, default_opset=op)
        def Rot90(x, k: int, axes: Sequence[int],
                  perm_1: Sequence[int], starts_1: Sequence[int], ends_1: Sequence[int],
                  axes_1: Sequence[int], steps_1: Sequence[int],
                  perm_2: Sequence[int], starts_2: Sequence[int], ends_2: Sequence[int],
                  axes_2: Sequence[int], steps_2: Sequence[int]):
            return op.Identity(turn(
                x, perm_1=perm_1, starts_1=starts_1, ends_1=ends_1, axes_1=axes_1, steps_1=steps_1,
                perm_2=perm_2, starts_2=starts_2, ends_2=ends_2, axes_2=axes_2, steps_2=steps_2))
    return flatten(Rot90, [turn], HELPERS, text)


def rot_scale(op: Opset, turns: set[int], text: str) -> onnx.FunctionProto:
    """As `rot90`, then times the factor."""
    turn = _turn(op, turns)
    if len(turns) == 1 and 0 not in turns:
        @script(OURS, default_opset=op)
        def CustomRotScale(x, rotations: int, scale_factor: float, dims: str, dtype: int,
                           perm: Sequence[int], flip: Sequence[int]):
            factor = op.Cast(op.Constant(value_float=scale_factor), to=dtype)
            return op.Mul(turn(x, perm=perm, flip=flip), factor)
    else:
        @script(OURS, default_opset=op)
        def CustomRotScale(x, rotations: int, scale_factor: float, dims: str, dtype: int,
                           perm_1: Sequence[int], starts_1: Sequence[int], ends_1: Sequence[int],
                           axes_1: Sequence[int], steps_1: Sequence[int],
                           perm_2: Sequence[int], starts_2: Sequence[int], ends_2: Sequence[int],
                           axes_2: Sequence[int], steps_2: Sequence[int]):
            turned = turn(x, perm_1=perm_1, starts_1=starts_1, ends_1=ends_1, axes_1=axes_1, steps_1=steps_1,
                          perm_2=perm_2, starts_2=starts_2, ends_2=ends_2, axes_2=axes_2, steps_2=steps_2)
            factor = op.Cast(op.Constant(value_float=scale_factor), to=dtype)
            return op.Mul(turned, factor)
    return flatten(CustomRotScale, [turn], HELPERS, text)


def _turn(op: Opset, turns: set[int]) -> OnnxFunction:
    """The piece that turns."""
    back, begin = (ints(*[value] * (1 + (turns == {2}))) for value in (-1, BEGIN))
    if turns == {1}:
        @script(PIECES, default_opset=op)
        def turn(x, perm: Sequence[int], flip: Sequence[int]):
            one = op.Constant(value=back)
            return op.Slice(op.Transpose(x, perm=perm), one, op.Constant(value=begin),
                            op.Constant(value_ints=flip), one)
    elif turns == {2}:
        @script(PIECES, default_opset=op)
        def turn(x, perm: Sequence[int], flip: Sequence[int]):
            two = op.Constant(value=back)
            return op.Slice(x, two, op.Constant(value=begin), op.Constant(value_ints=flip), two)
    elif turns == {3}:
        @script(PIECES, default_opset=op)
        def turn(x, perm: Sequence[int], flip: Sequence[int]):
            one = op.Constant(value=back)
            flipped = op.Slice(x, one, op.Constant(value=begin), op.Constant(value_ints=flip), one)
            return op.Transpose(flipped, perm=perm)
    else:
        @script(PIECES, default_opset=op)
        def turn(x, perm_1: Sequence[int], starts_1: Sequence[int], ends_1: Sequence[int],
                 axes_1: Sequence[int], steps_1: Sequence[int],
                 perm_2: Sequence[int], starts_2: Sequence[int], ends_2: Sequence[int],
                 axes_2: Sequence[int], steps_2: Sequence[int]):
            first = op.Slice(op.Transpose(x, perm=perm_1), op.Constant(value_ints=starts_1),
                             op.Constant(value_ints=ends_1), op.Constant(value_ints=axes_1),
                             op.Constant(value_ints=steps_1))
            return op.Slice(op.Transpose(first, perm=perm_2), op.Constant(value_ints=starts_2),
                            op.Constant(value_ints=ends_2), op.Constant(value_ints=axes_2),
                            op.Constant(value_ints=steps_2))
    return turn


def helpers(turn: int, plane: tuple[int, int], rank: int, turns: set[int]) -> dict[str, list[int]]:
    """The attributes that the body for `turns` reads on a node.

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
    rows = {"starts": [-1] * n, "ends": [BEGIN] * n, "axes": list(axes), "steps": [-1] * n} if n else {
        "starts": [0], "ends": [END], "axes": [0], "steps": [1]}
    return {f"{name}_{which}": row for name, row in rows.items()}
