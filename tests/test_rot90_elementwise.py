"""Rotations that pass over what treats every element alike: exact to the bit, or left where they are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from rotations import Sketch
from test_rot90_declines import left_alone

import rewriter

SWAP = [0, 1, 3, 2]
X = (np.random.default_rng(3).standard_normal((2, 3, 5, 7)) * 9).astype(np.float32)


def turned(s: Sketch, x: str, k: int) -> str:
    return s.flip(x, [2, 3]) if k == 2 else s.transpose(s.flip(x, [3 if k == 1 else 2]), SWAP)


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if node.op_type != "Constant"]


def quantize(s: Sketch, x: str) -> str:
    scale, zero = s.const(0.25, np.float32), s.const(3, np.uint8)
    q = np.clip(np.rint(s.values[x] / np.float32(0.25)) + 3, 0, 255).astype(np.uint8)
    y = s.op("QuantizeLinear", [x, scale, zero], q)
    return s.op("DequantizeLinear", [y, scale, zero], (q.astype(np.float32) - 3) * np.float32(0.25))


# name: (the nodes between, what they are)
MAPS = {
    "Relu": lambda s, x: s.op("Relu", [x], np.maximum(s.values[x], 0)),
    "LeakyRelu": lambda s, x: s.op("LeakyRelu", [x], np.where(s.values[x] < 0, s.values[x] * np.float32(0.5),
                                                              s.values[x]), alpha=0.5),
    "Cast": lambda s, x: s.op("Cast", [x], s.values[x].astype(np.int32), to=TensorProto.INT32),
    "Clip": lambda s, x: s.op("Clip", [x, s.const(-1, np.float32), s.const(2, np.float32)],
                              np.clip(s.values[x], -1, 2)),
    "Sub": lambda s, x: s.op("Sub", [s.const(2, np.float32), x], 2 - s.values[x]),
    "Greater": lambda s, x: s.op("Greater", [x, s.const(1, np.float32)], s.values[x] > 1),
    "quantized": quantize,
    "three": lambda s, x: s.op("Neg", [MAPS["Clip"](s, MAPS["Relu"](s, x))], -np.clip(s.values[x], 0, 2)),
}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize(("first", "second"), [(1, 3), (2, 2), (1, 1), (3, 2)])
def test_turns_meet_across(run, custom, name, first, second):
    s = Sketch(X)
    y = turned(s, MAPS[name](s, turned(s, "x", first)), second)
    model = s.model(y)
    fused, report = rewriter.fuse(model)
    onnx.checker.check_model(fused, full_check=True)
    assert custom(fused) == ({} if (first + second) % 4 == 0 else {"Rot90": 1})
    assert [op for op in ops(fused) if op != "Rot90"] == [op for op in ops(model) if op not in ("Slice", "Transpose")]
    (got,) = run(fused, s.feeds).values()
    assert got.dtype == s.values[y].dtype
    np.testing.assert_array_equal(got, s.values[y])
    assert rewriter.fuse(fused)[0] == fused
    assert len(report.fused) == 1


def test_a_turn_made_of_a_flip_and_a_transpose_on_either_side(run):
    s = Sketch(X)
    y = s.transpose(MAPS["Relu"](s, s.flip("x", [3])), SWAP)
    fused, report = rewriter.fuse(s.model(y))
    assert ops(fused) == ["Rot90", "Relu"]
    assert report.fused[0].note == "a quarter turn in the plane of axes 2 and 3, Relu stays, from 3 nodes"
    np.testing.assert_array_equal(run(fused, s.feeds)[y], s.values[y])


@pytest.mark.parametrize(("before", "behind", "want"), [
    (np.uint8, np.float32, ["Rot90", "Cast"]), (np.float64, np.float16, ["Cast", "Rot90"]),
    (np.float32, np.int32, ["Rot90", "Cast"])])
def test_a_turn_moves_where_the_elements_are_smallest(run, before, behind, want):
    s = Sketch((np.abs(X) + 1).astype(before))
    to = helper.np_dtype_to_tensor_dtype(np.dtype(behind))
    flipped = s.flip("x", [3])
    y = s.transpose(s.op("Cast", [flipped], s.values[flipped].astype(behind), to=to), SWAP)
    fused, _ = rewriter.fuse(s.model(y))
    assert ops(fused) == want
    np.testing.assert_array_equal(run(fused, s.feeds)[y], s.values[y])


@pytest.mark.parametrize("narrow", [TensorProto.FLOAT8E4M3FN, TensorProto.INT4])
def test_no_turn_in_a_type_that_slice_does_not_take(run, narrow):
    s = Sketch(np.rint(X / 9), opset=21)
    inner = s.op("Cast", [s.flip("x", [3])], None, to=narrow)
    want = np.flip(s.values["x"], 3)  # all of them are exact in either type
    y = s.transpose(s.op("Cast", [inner], want, to=TensorProto.FLOAT), SWAP)
    fused, _ = rewriter.fuse(s.model(y))
    onnx.checker.check_model(fused, full_check=True)
    assert ops(fused) == ["Rot90", "Cast", "Cast"]
    np.testing.assert_array_equal(run(fused, s.feeds)[y], s.values[y])


def test_dynamic_shapes(run):
    s = Sketch(X, dims=["n", 3, "h", "w"])
    y = turned(s, MAPS["three"](s, turned(s, "x", 1)), 3)
    fused, _ = rewriter.fuse(s.model(y))
    assert ops(fused) == ["Relu", "Clip", "Neg"]
    np.testing.assert_array_equal(run(fused, s.feeds)[y], s.values[y])


def test_a_part_that_is_worth_it_when_the_whole_is_not(run):
    """Three turns, the last of them in another plane: the first two meet."""
    s = Sketch(X)
    y = turned(s, MAPS["Relu"](s, turned(s, "x", 1)), 1)
    y = s.transpose(s.flip(MAPS["Clip"](s, y), [1]), [1, 0, 2, 3])
    fused, _ = rewriter.fuse(s.model(y))
    assert ops(fused) == ["Rot90", "Relu", "Clip", "Rot90"]
    np.testing.assert_array_equal(run(fused, s.feeds)[y], s.values[y])


def keep(s: Sketch, name: str, first: int = 1, second: int = 3) -> list[str]:
    """What becomes of a turn, something, and the turn back, when the turns must stay."""
    y = turned(s, STOPS[name](s, turned(s, "x", first)), second)
    fused, _ = rewriter.fuse(s.model(y))
    return [op for op in ops(fused) if op == "Rot90"]


def per_channel(s: Sketch, x: str) -> str:
    slope = np.arange(1, s.values[x].shape[-1] + 1, dtype=np.float32)
    return s.op("PRelu", [x, s.const(slope, np.float32)], np.where(s.values[x] < 0, s.values[x] * slope, s.values[x]))


STOPS = {
    "a function that runtimes round by place": lambda s, x: s.op("Exp", [x], np.exp(s.values[x])),
    "slopes along the last axis": per_channel,
    "an offset for every element": lambda s, x: s.op("Add", [x, s.const(X[0, 0, 0, 0] * s.values[x], np.float32)],
                                                     s.values[x] * (1 + X[0, 0, 0, 0])),
    "an operand of one element that is no scalar of this axis": lambda s, x: s.op(
        "QuantizeLinear", [x, s.const(np.full(s.values[x].shape[1], .5), np.float32),
                           s.const(np.zeros(s.values[x].shape[1]), np.uint8)],
        np.clip(np.rint(s.values[x] / .5), 0, 255).astype(np.uint8), axis=1),
    "the larger of it and a zero, of either sign": lambda s, x: s.op(
        "Max", [x, s.const(0, np.float32)], np.maximum(s.values[x], 0)),
    "a Cast that overflows by lane": lambda s, x: s.op("Cast", [x], np.abs(s.values[x]).astype(np.uint32),
                                                       to=TensorProto.UINT32),
    "the value itself": lambda s, x: s.op("Mul", [x, x], s.values[x] ** 2),
    "a normalisation": lambda s, x: s.op("Softmax", [x], s.values[x], axis=3),
}


@pytest.mark.parametrize("name", STOPS)
def test_what_is_not_passed(name):
    assert keep(Sketch(X), name) == ["Rot90", "Rot90"]


def test_a_value_inside_that_others_need(run):
    s = Sketch(X)
    middle = MAPS["Relu"](s, turned(s, "x", 1))
    y = turned(s, middle, 3)
    fused, _ = rewriter.fuse(s.model(middle, y))
    assert ops(fused) == ["Rot90", "Relu", "Rot90"]
    got = run(fused, s.feeds)
    np.testing.assert_array_equal(got[y], s.values[y])
    np.testing.assert_array_equal(got[middle], s.values[middle])


def test_a_layout_sandwich_is_none_of_our_business():
    s = Sketch(X)
    y = s.transpose(MAPS["Relu"](s, s.transpose("x", [0, 2, 3, 1])), [0, 3, 1, 2])
    assert left_alone(s.model(y)) == []


def test_a_single_flip_and_its_inverse_stay():
    s = Sketch(X)
    y = s.flip(MAPS["Relu"](s, s.flip("x", [3])), [3])
    assert left_alone(s.model(y)) == []


def test_rotated_constants_are_left_to_the_runtime():
    """A p4 convolution turns its weights: every runtime folds that, and a node on a constant would hinder it."""
    s = Sketch(X)
    weight = s.const(np.arange(4 * 3 * 3 * 3).reshape(4, 3, 3, 3), np.float32)
    s.values[weight] = np.arange(4 * 3 * 3 * 3, dtype=np.float32).reshape(4, 3, 3, 3)
    filters = [weight, *(turned(s, weight, k) for k in (1, 2, 3))]
    bank = s.op("Concat", filters, np.concatenate([s.values[f] for f in filters]), axis=0)
    s.op("Conv", ["x", bank], np.zeros((2, 16, 3, 5), np.float32), ["y"])
    s.values["y"] = np.zeros((2, 16, 3, 5), np.float32)
    reason = "a rotation of a constant: runtimes compute it ahead of time, and it is no smaller as a node of its own"
    assert left_alone(s.model("y")) == [reason]  # one line for the three, which share their tensor
