"""What is no rotation, or is left alone, and the reason that is given."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from rotations import FIRST, LAST, Sketch

import rewriter

SWAP = [0, 1, 3, 2]


def sketch(dims=None, opset=17, shape=(2, 3, 5, 7)):
    return Sketch(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), dims=dims, opset=opset)


def left_alone(model: onnx.ModelProto) -> list[str]:
    """The reasons given for a model that must come out as it went in."""
    fused, report = rewriter.fuse(model)
    assert fused == model and not report.fused
    return [miss.reason for miss in report.missed]


@pytest.mark.parametrize(("bounds", "reason"), [
    (([-1], [0], [3], [-1]), "the Slice drops index 0 of axis 3: end 0 stops before"),
    (([-1], [-7], [3], [-1]), "the Slice drops index 0 of axis 3: end -7 stops before"),
    (([-1], [2], [3], [-1]), "the Slice drops indices 0 to 2 of axis 3: end 2 stops before"),
    (([-1], [-1], [3], [-1]), "the Slice takes nothing of axis 3: end -1 means index 6"),
    (([-2], [FIRST], [3], [-1]), "the Slice reverses axis 3 from index 5, not from its last, 6"),
    (([-1], [FIRST], [3], [-2]), "the Slice has step -2 on axis 3"),
    (([-1, 0], [FIRST, 2], [3, 1], [-1, 1]), "the Slice also crops axis 1"),
])
@pytest.mark.parametrize("behind", [True, False])
def test_slices_that_are_no_flip(bounds, reason, behind):
    starts, ends, axes, steps = bounds
    index = [slice(None)] * 4
    for start, end, axis, step in zip(*bounds):
        index[axis] = slice(start, None if end == FIRST else end, step)
    s = sketch(shape=(2, 3, 7, 7))
    x = s.transpose("x", SWAP) if not behind else "x"
    y = s.slice(x, starts, ends, axes, steps, value=s.values[x][tuple(index)])
    if behind:
        y = s.transpose(y, SWAP)
    assert left_alone(s.model(y)) == [reason]


@pytest.mark.parametrize(("bounds", "reason"), [
    (([6], [FIRST]), "the Slice reverses axis 3 from index 6, not from the last of every length"),
    (([-1], [-1000]), "the Slice reverses axis 3 up to end -1000, which is not before the first of every length"),
])
def test_bounds_that_do_not_hold_for_every_length(bounds, reason):
    s = sketch(dims=["n", 3, "h", "w"])
    y = s.transpose(s.slice("x", *bounds, [3], [-1]), SWAP)
    assert left_alone(s.model(y)) == [reason]


def test_computed_bounds_that_leave_something_out():
    """From W - 1 down to 1 - W: index 0 and 1 stay behind."""
    s = sketch(dims=["n", 3, "h", "w"])
    one = s.const([1])
    width = s.op("Gather", [s.op("Shape", ["x"], None), s.const([3])], None)
    start, end = s.op("Sub", [width, one], None), s.op("Sub", [one, width], None)
    flipped = s.op("Slice", ["x", start, end, s.const([3]), s.const([-1])], s.values["x"][..., :1:-1])
    (reason,) = left_alone(s.model(s.transpose(flipped, SWAP)))
    assert reason.startswith("the Slice has computed bounds that do not reverse all of axis 3 at length")


@pytest.mark.parametrize(("given", "value", "reason"), [
    ("steps", [-1], "the steps of the Slice are not constant"), ("axes", [3], "the axes of the Slice are not constant"),
    ("ends", [-8], "the bounds of the Slice depend on the value of the input ends")])
@pytest.mark.parametrize("initializer", [False, True])
def test_bounds_from_outside(given, value, reason, initializer):
    """Graph inputs, and initializers that a caller may override, are no constants."""
    s = sketch()
    known = {"starts": [-1], "ends": [FIRST], "axes": [3], "steps": [-1]}
    operands = [s.input(given, np.array(value)) if name == given else s.const(row) for name, row in known.items()]
    if initializer:
        s.initializers.append(helper.make_tensor(given, onnx.TensorProto.INT64, [1], value))
    flipped = s.op("Slice", ["x", *operands], s.values["x"][..., ::-1])
    assert left_alone(s.model(s.transpose(flipped, SWAP))) == [reason]


@pytest.mark.parametrize(("index", "reason"), [
    ([5, 4, 3, 2, 1, 0], "the Gather's 6 indices are not axis 3 (7) in reverse"),
    ([5, 4, 3, 2, 1, 0, 6], "the Gather's 7 indices are not axis 3 (7) in reverse"),
    ([0, 1, 2, 3, 4, 5, 6], None), ([6, 5, 4, 3, 2, 1, -7], "")])
def test_gathers(index, reason):
    s = sketch()
    y = s.op("Gather", ["x", s.const(index)], np.take(s.values["x"], index, 3), axis=3)
    model = s.model(s.transpose(y, SWAP))
    if reason == "":  # -7 is index 0
        assert rewriter.fuse(model)[1].count("Rot90") == 1
    else:
        assert left_alone(model) == ([reason] if reason else [])


def test_gather_of_dynamic_length():
    """Seven indices reverse an axis of seven only."""
    s = sketch(dims=["n", 3, "h", "w"])
    y = s.gather("x", 3)
    assert left_alone(s.model(s.transpose(y, SWAP))) == ["the Gather's 7 indices are not axis 3 (w) in reverse"]


@pytest.mark.parametrize("lengths", [[5, 4], [4, 4]])
def test_reverse_sequence_of_shorter_lengths(lengths):
    s = sketch()
    y = s.op("ReverseSequence", [s.transpose("x", [2, 0, 1, 3]), s.const(lengths)], None, time_axis=0, batch_axis=1)
    s.values[y] = s.values["x"]
    assert left_alone(s.model(s.transpose(y, [1, 0, 2, 3]))) == [
        "the ReverseSequence does not reverse all of axis 0 in every row"]


def test_split_into_larger_pieces():
    s = sketch(shape=(2, 3, 5, 6))
    s.op("Split", ["x", s.const([2, 2, 2])], None, ["a", "b", "c"], axis=3)
    y = s.op("Concat", ["c", "b", "a"], s.values["x"], axis=3)
    assert left_alone(s.model(s.transpose(y, SWAP))) == []


@pytest.mark.parametrize(("steps", "reason"), [
    ([("flip", [3])], None), ([("transpose", SWAP)], None), ([("flip", [1, 2, 3])], "axes 1, 2 and 3 reversed"),
    ([("flip", [1]), ("transpose", SWAP)], "the axes permuted to (0, 1, 3, 2) with axis 1 reversed"),
    ([("flip", [3]), ("transpose", [0, 2, 3, 1])], "the axes permuted to (0, 2, 3, 1) with axis 2 reversed"),
    ([("transpose", [0, 2, 3, 1]), ("transpose", [0, 2, 1, 3])], None), ([("flip", [3]), ("flip", [3])], None),
    ([("transpose", SWAP), ("transpose", SWAP)], None)])
def test_chains_that_hold_no_rotation(steps, reason):
    s, y = sketch(), "x"
    for name, argument in steps:
        y = getattr(s, name)(y, argument)
    assert left_alone(s.model(y)) == ([f"no rotation in one plane: {reason}"] if reason else [])


@pytest.mark.parametrize(("shape", "dims"), [((1, 3, 128, 128), None), ((1, 3, 5, 7), ["n", 3, "h", "w"])])
def test_a_flip_that_others_need(shape, dims):
    """Turning from before the flip would flip a second time; with a small tensor that does not matter."""
    s = sketch(shape=shape, dims=dims)
    flipped = s.flip("x", [3])
    y = s.transpose(flipped, SWAP)
    assert left_alone(s.model(flipped, y)) == [
        "a rotation, but others need the value half way, and turning from before it would take another pass over the "
        "tensor"]
    small = sketch()
    flipped = small.flip("x", [3])
    fused, report = rewriter.fuse(small.model(flipped, small.transpose(flipped, SWAP)))
    assert report.count("Rot90") == 1 and [n.op_type for n in fused.graph.node] == ["Slice", "Rot90"]


def test_constants_and_shapes_are_left_to_the_runtime():
    s = sketch()
    weight = s.const(np.ones((2, 3, 5, 7)), np.float32)
    s.values[weight] = np.ones((2, 3, 5, 7), np.float32)
    turned = s.transpose(s.flip(weight, [3]), SWAP)
    y = s.op("Mul", [s.transpose("x", SWAP), turned], s.values["x"])
    why = "runtimes compute it ahead of time, and it is no smaller as a node of its own"
    assert left_alone(s.model(y)) == [f"a rotation of a constant: {why}"]
    s = sketch(dims=["n", 3, "h", "w"])  # pads as torch makes them: [4, 2], rows reversed, transposed
    s.values["sizes"] = np.zeros((2, 2), np.int64)
    s.op("Reshape", [s.op("Shape", ["x"], None), s.const([2, 2])], None, ["sizes"])
    s.values[(turned := s.slice("sizes", [-1], [FIRST], [0], [-1]))] = s.values["sizes"]
    assert left_alone(s.model(s.transpose(turned, [1, 0]))) == []


def test_other_domains_and_foreign_attributes():
    s = sketch()
    y = s.transpose(s.flip("x", [3]), SWAP)
    model = s.model(y)
    model.graph.node[0].domain = "my"
    model.opset_import.append(helper.make_opsetid("my", 1))
    assert left_alone(model) == []


def test_an_old_opset():
    s = sketch(opset=10)
    assert left_alone(s.model(s.transpose(s.flip("x", [3]), SWAP))) == [
        "Rot90 needs opset 11 or newer, this model has 10"]


def test_a_chain_ends_at_a_branch():
    """The flip is made outside, the Transpose inside a branch: two scopes, no chain."""
    s = sketch()
    flipped = s.flip("x", [3])
    infos = [helper.make_tensor_value_info(name, 1, [None] * 4) for name in ("turned", "same")]
    branch = helper.make_graph([helper.make_node("Transpose", [flipped], ["turned"], perm=SWAP)], "t", [], infos[:1])
    other = helper.make_graph([helper.make_node("Neg", [flipped], ["same"])], "e", [], infos[1:])
    y = s.op("If", [s.input("condition", np.array(True))], s.values["x"], then_branch=branch, else_branch=other)
    assert left_alone(s.model(y)) == []


def test_crops_and_plain_slices_say_nothing():
    s = sketch()
    y = s.slice("x", [0, 1], [LAST, 4], [1, 3], [1, 1], value=s.values["x"][..., 1:4])
    assert left_alone(s.model(s.transpose(y, SWAP))) == []


def turned_from(dims, compute) -> onnx.ModelProto:
    """A turn whose flip of axis 2 starts at what `compute(sketch, length of the axis)` makes."""
    s = sketch(dims=dims)
    length = s.op("Gather", [s.op("Shape", ["x"], None), s.const([2])], None)
    operands = [compute(s, length), s.const([FIRST]), s.const([2]), s.const([-1])]
    return s.model(s.transpose(s.op("Slice", ["x", *operands], s.values["x"][:, :, ::-1]), SWAP))


def last(s, length):
    return s.op("Sub", [length, s.const([1])], None)


def at_most(limit):
    return lambda s, length: s.op("Min", [last(s, length), s.const([limit])], None)


def reduced(s, length):
    both = s.op("Concat", [last(s, length), s.const([300])], None, axis=0)
    return s.op("ReduceMin", [both], None, axes=[0], keepdims=1)


def remainder(s, length):
    return s.op("Sub", [s.op("Mod", [length, s.const([6000])], None), s.const([1])], None)


def one_less_in_256(s, length):
    part = s.op("Mul", [s.op("Cast", [length], None, to=1), s.const([1 / 256], np.float32)], None)
    return s.op("Sub", [last(s, length), s.op("Cast", [s.op("Floor", [part], None)], None, to=7)], None)


def test_affine_bounds_are_proven():
    fused, report = rewriter.fuse(turned_from(["n", 3, "h", "w"], last))
    assert report.count("Rot90") == 1 and [n.op_type for n in fused.graph.node] == ["Rot90"]


@pytest.mark.parametrize(("compute", "operator"), [
    (at_most(300), "Min"), (at_most(5000), "Min"), (reduced, "ReduceMin"), (remainder, "Mod"),
    (one_less_in_256, "Floor")])
def test_bounds_that_turn_at_some_length(compute, operator):
    assert left_alone(turned_from(["n", 3, "h", "w"], compute)) == [
        f"the bounds of the Slice are computed by {operator}, which trying sizes does not prove"]


def test_a_start_beyond_the_tried_lengths_only():
    """From w + 5000: the last index as long as h is not larger than that."""
    def compute(s, length):
        width = s.op("Gather", [s.op("Shape", ["x"], None), s.const([3])], None)
        return s.op("Add", [width, s.const([5000])], None)

    (reason,) = left_alone(turned_from(["n", 3, "h", "w"], compute))
    assert reason.startswith("the Slice reverses axis 2 from index 50") and reason.endswith("the last of every length")


def test_a_start_from_outside():
    """An integer input is no size: 0 and -2 reverse a part."""
    assert left_alone(turned_from(None, lambda s, length: s.input("start", np.array([4])))) == [
        "the bounds of the Slice depend on the value of the input start"]


def test_indices_and_lengths_from_outside():
    s = sketch()
    one, down = s.const(-1), s.input("first", np.array(6))
    flipped = s.op("Gather", ["x", s.op("Range", [down, one, one], None)], s.values["x"][..., ::-1], axis=3)
    assert left_alone(s.model(s.transpose(flipped, SWAP))) == []
    s = sketch()
    flipped = s.op("ReverseSequence", ["x", s.input("rows", np.array([3, 3]))], s.values["x"][:, ::-1],
                   time_axis=1, batch_axis=0)
    assert left_alone(s.model(s.transpose(flipped, [0, 2, 1, 3]))) == [
        "the lengths of the ReverseSequence depend on the value of the input rows"]


def test_a_loop_counter_is_no_size():
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    s = Sketch(x)
    count, zero = s.const(4), s.const([0])
    operands = [s.const([FIRST]), s.const([3]), s.const([-1])]
    nodes = [helper.make_node("Unsqueeze", ["i", zero], ["start"]),
             helper.make_node("Slice", ["x", "start", *operands], ["flipped"]),
             helper.make_node("Transpose", ["flipped"], ["turned"], perm=SWAP),
             helper.make_node("ReduceSum", ["turned"], ["total"], keepdims=0),
             helper.make_node("Identity", ["go"], ["on"])]
    info = helper.make_tensor_value_info
    body = helper.make_graph(nodes, "body", [info("i", 7, []), info("go", 9, [])],
                             [info("on", 9, []), info("total", 1, [])])
    y = s.op("Loop", [count, ""], np.zeros(4, np.float32), body=body)
    assert left_alone(s.model(y)) == ["the bounds of the Slice depend on data"]


@pytest.mark.parametrize("op_type", ["Transpose", "Split"])
def test_attributes_that_the_caller_of_a_function_sets(op_type):
    def node(*args, name, kind, **attributes):
        made = helper.make_node(*args, **attributes)
        made.attribute.append(onnx.AttributeProto(name=name, ref_attr_name=name, type=kind))
        return made

    if op_type == "Transpose":
        name, value = "perm", SWAP
        nodes = [node("Transpose", ["x"], ["a"], name="perm", kind=onnx.AttributeProto.INTS),
                 helper.make_node("Transpose", ["a"], ["y"], perm=SWAP)]
    else:
        name, value = "axis", 1
        nodes = [node("Split", ["x"], ["p", "q", "r"], name="axis", kind=onnx.AttributeProto.INT),
                 helper.make_node("Concat", ["r", "q", "p"], ["a"], axis=1),
                 helper.make_node("Transpose", ["a"], ["y"], perm=[0, 2, 1, 3])]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    function = helper.make_function("my", "F", ["x"], ["y"], nodes, imports[:1], [name])
    info = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="my", **{name: value})], "g",
                              [info("x", 1, [2, 3, 5, 7])], [info("y", 1, [None] * 4)])
    model = helper.make_model(graph, ir_version=8, opset_imports=imports, functions=[function])
    onnx.checker.check_model(model)
    assert left_alone(model) == []


@pytest.mark.filterwarnings("error")
def test_a_factor_beyond_float32():
    s = Sketch(np.ones((2, 3, 5, 7)))
    y = s.scale(s.transpose(s.flip("x", [3]), SWAP), 1e300)
    fused, report = rewriter.fuse(s.model(y))
    assert report.count("Rot90") == 1 and [n.op_type for n in fused.graph.node] == ["Rot90", "Mul"]


def test_fusing_again_finds_nothing():
    """Behind computed bounds inference knows no lengths; the second flip's end of -6 is read all the same."""
    s = sketch(dims=["n", 3, 4, 5], shape=(2, 3, 4, 5))
    one = s.const([1])
    length = s.op("Gather", [s.op("Shape", ["x"], None), s.const([2])], None)
    start, end = last(s, length), s.op("Sub", [s.op("Neg", [length], None), one], None)
    flipped = s.op("Slice", ["x", start, end, s.const([2]), s.const([-1])], s.values["x"][:, :, ::-1])
    turned = s.transpose(flipped, SWAP)
    y = s.slice(turned, [-1, -1], [-6, -6], [2, 3], [-1, -1])
    once, report = rewriter.fuse(s.model(y, turned))
    assert [f.operator for f in report.fused] == ["Rot90", "Rot90"]
    again, report = rewriter.fuse(once)
    assert again == once and not report.fused
