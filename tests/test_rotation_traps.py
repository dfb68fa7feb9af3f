"""The traps of recognising rotations, by number: what looks like rot90, and is not.

T14 slices that are no full flip; T15 axes that are no plane; T16 a flip that others need; T17 factors that are no
scalar.
T1 to T13 and T18 to T20, which are about grids, are in `test_traps`; more spellings in `test_rot90_declines`.
"""

from __future__ import annotations

import numpy as np
import pytest
from rotations import FIRST, Sketch

import rewriter

SWAP = [0, 1, 3, 2]


def sketch(shape=(2, 3, 7, 7), dims=None):
    return Sketch(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), dims=dims)


def cut(start, end, step, axis=3):
    """A Slice of these bounds, then a Transpose."""
    def make():
        s = sketch()
        index = [slice(None)] * 4
        index[axis] = slice(start, None if end == FIRST else end, step)
        y = s.slice("x", [start], [end], [axis], [step], value=s.values["x"][tuple(index)])
        return s, s.transpose(y, SWAP)
    return make


def twice():
    s = sketch()
    y = s.slice("x", [-1, -1], [FIRST, FIRST], [3, 3], [-1, -1], value=s.values["x"][..., ::-1])
    return s, s.transpose(y, SWAP)


def bounds_from_outside():
    s = sketch()
    operands = [s.input("start", np.array([-1])), s.const([FIRST]), s.const([3]), s.const([-1])]
    return s, s.transpose(s.op("Slice", ["x", *operands], s.values["x"][..., ::-1]), SWAP)


def turned(flip, perm, dims=None):
    def make():
        s = sketch(dims=dims)
        return s, s.transpose(s.flip("x", flip), perm)
    return make


def others_need():
    s = sketch((1, 3, 128, 128))
    flipped = s.flip("x", [3])
    return s, flipped, s.transpose(flipped, SWAP)


def whole(shape):
    """A rotation, then a factor of this shape."""
    def make():
        s = sketch()
        y = s.transpose(s.flip("x", [3]), SWAP)
        factor = np.linspace(1, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)
        return s, s.op("Mul", [y, s.const(factor, np.float32)], s.values[y] * factor)
    return make


def computed_scale():
    s = sketch()
    y = s.transpose(s.flip("x", [3]), SWAP)
    return s, s.op("Mul", [y, s.input("factor", np.array(2, np.float32))], s.values[y] * 2)


STAYS = {
    "T14_end_0": (cut(-1, 0, -1), "the Slice drops index 0 of axis 3: end 0 stops before"),
    "T14_end_minus_1": (cut(-1, -1, -1), "the Slice takes nothing of axis 3: end -1 means index 6"),
    "T14_step_minus_2": (cut(-1, FIRST, -2), "the Slice has step -2 on axis 3"),
    "T14_start_before_the_last": (cut(-2, FIRST, -1), "the Slice reverses axis 3 from index 5, not from its last, 6"),
    "T14_the_same_axis_twice": (twice, "the Slice names axis 3 twice"),
    "T14_bounds_from_outside": (bounds_from_outside, "the bounds of the Slice depend on the value of the input start"),
    "T15_a_flip_of_another_axis": (turned([1], SWAP), "the axes permuted to (0, 1, 3, 2) with axis 1 reversed"),
    "T15_a_transpose_of_three_axes": (turned([3], [0, 2, 3, 1]), "the axes permuted to (0, 2, 3, 1) with axis 2"),
    "T15_three_axes_reversed": (turned([1, 2, 3], [0, 1, 2, 3]), "axes 1, 2 and 3 reversed"),
    "T15_the_batch_axis": (turned([0], SWAP), "the axes permuted to (0, 1, 3, 2) with axis 0 reversed"),
    "T16_others_need_the_flip": (others_need, "a rotation, but others need the value half way"),
}
FUSES = {
    "T15_a_plane_of_channels": (turned([1], [0, 2, 1, 3]), {"Rot90": 1}),
    "T15_dynamic": (turned([3], SWAP, ["n", 3, "h", "w"]), {"Rot90": 1}),
    "T17_a_factor_for_each_channel": (whole((1, 3, 1, 1)), {"Rot90": 1}),
    "T17_a_factor_for_each_element": (whole((2, 3, 7, 7)), {"Rot90": 1}),
    "T17_a_computed_factor": (computed_scale, {"Rot90": 1}),
}


@pytest.mark.parametrize("trap", STAYS)
def test_stays(trap):
    make, reason = STAYS[trap]
    s, *outputs = make()
    model = s.model(*outputs)
    fused, report = rewriter.fuse(model)
    assert fused.SerializeToString() == model.SerializeToString()
    named = {name for node in model.graph.node for name in (*node.input, *node.output)}
    found = [(miss.reason, miss.tensor) for miss in report.missed]
    assert any(reason in said and at in named for said, at in found), found


@pytest.mark.parametrize("trap", FUSES)
def test_the_rotation_alone_fuses(trap, run, custom):
    make, expected = FUSES[trap]
    s, y = make()
    model = s.model(y)
    fused, report = rewriter.fuse(model)
    assert custom(fused) == expected, [m.reason for m in report.missed]
    np.testing.assert_array_equal(run(fused, s.feeds)[y], run(model, s.feeds)[y])
