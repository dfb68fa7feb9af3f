"""Rotations that fuse: exported torch modules, every spelling by hand, factors, layouts; values against torch/numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper
from rotations import FIRST, LAST, Sketch

import rewriter

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(5)


def image(*shape, dtype=np.float32):
    return (RNG.standard_normal(shape) * 50).astype(dtype)


class Turn(torch.nn.Module):
    def __init__(self, k, dims=(2, 3), factor=None):
        super().__init__()
        self.k, self.dims, self.factor = k, dims, factor

    def forward(self, x):
        y = torch.rot90(x, self.k, self.dims)
        return y if self.factor is None else y * self.factor


class Augmented(torch.nn.Module):
    """Test-time augmentation: every turn, the net, turned back, the mean."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x):
        return torch.stack([torch.rot90(self.net(torch.rot90(x, k, (2, 3))), -k, (2, 3)) for k in range(4)]).mean(0)


class Flipped(torch.nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def forward(self, x):
        for step in self.steps:
            x = x.flip(step) if isinstance(step, int) else x.transpose(*step)
        return x


def attributes(model):
    return [{a.name: helper.get_attribute_value(a) for a in node.attribute}
            for node in model.graph.node if node.domain == "custom.ops"]


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
@pytest.mark.parametrize("k", [1, 2, 3, -1, 5])
@pytest.mark.parametrize(("shape", "dims"), [
    ((2, 3, 5, 7), (2, 3)), ((5, 7), (0, 1)), ((2, 3, 5, 7), (1, 3)), ((2, 3, 5, 7), (-1, -2)),
    ((1, 2, 3, 4, 5), (2, 4))])
def test_torch_rot90(export, fuses, k, shape, dims, dynamo):
    x = torch.from_numpy(image(*shape))
    module = Turn(k, dims)
    if not dynamo:  # its exporter has no rot90
        a, b = (d % len(shape) for d in dims)
        quarter = [[], [b, (a, b)], [a, b], [a, (a, b)]][k % 4]
        module = Flipped(quarter)
    model = export(module, (x,), dynamo=dynamo, opset=18 if dynamo else 13)
    want = torch.rot90(x, k, dims).numpy()
    fused, _ = fuses(model, {model.graph.input[0].name: x.numpy()}, {"Rot90": 1}, reference=[want], atol=0)
    (found,) = attributes(fused)
    assert found["axes"] == sorted(d % len(shape) for d in dims) and found["k"] in (1, 2, 3)
    np.testing.assert_array_equal(np.rot90(x.numpy(), found["k"], found["axes"]), want)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_dynamic_shapes(export, fuses, k):
    dim = torch.export.Dim
    model = export(Turn(k), (torch.zeros(2, 3, 5, 7),), dynamic=({0: dim("n"), 2: dim("h"), 3: dim("w")},))
    for shape in ((1, 3, 4, 9), (3, 3, 200, 1)):
        x = image(*shape)
        fuses(model, {"x": x}, {"Rot90": 1}, reference=[np.rot90(x, k, (2, 3))], atol=0)


def test_augmentation_in_one_body(export, fuses):
    """k = 1, 2 and 3 in one model share one function."""
    module, x = Augmented(), torch.from_numpy(image(1, 3, 6, 6))
    with torch.no_grad():
        want = module(x).numpy()
    fused, _ = fuses(export(module, (x,)), {"x": x.numpy()}, {"Rot90": 6}, reference=[want])
    assert [f.name for f in fused.functions] == ["Rot90"]


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.int64, np.uint8, np.bool_, ml_dtypes.bfloat16])
def test_dtypes(run, dtype):
    sketch = Sketch(image(2, 3, 5, 7).astype(dtype))
    model = sketch.model(sketch.transpose(sketch.flip("x", [3]), [0, 1, 3, 2]))
    fused, report = rewriter.fuse(model)
    assert report.count("Rot90") == 1
    onnx.checker.check_model(fused, full_check=True)
    if dtype is not ml_dtypes.bfloat16:  # numpy cannot hand it over
        (got,) = run(fused, sketch.feeds).values()
        np.testing.assert_array_equal(got, np.rot90(sketch.values["x"], 1, (2, 3)))


@pytest.mark.parametrize("spelling", ["slice", "far", "exact", "gather", "gather_negative", "split"])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("opset", [11, 13, 18])
def test_spellings_of_a_flip(fuses, spelling, k, opset):
    sketch = Sketch(image(2, 3, 5, 7), opset=opset)
    y = sketch.flip("x", {1: [3], 2: [2, 3], 3: [2]}[k], spelling)
    if k != 2:
        y = sketch.transpose(sketch.op("Identity", [y], sketch.values[y]), [0, 1, 3, 2])
    want = np.rot90(sketch.feeds["x"], k, (2, 3))
    fused, _ = fuses(sketch.model(y), sketch.feeds, {"Rot90": 1}, reference=[want], atol=0)
    assert len(fused.graph.node) == 1 and not fused.graph.initializer


def test_tensorflow_reverse(fuses):
    """Transpose, ReverseSequence with lengths from shapes, Transpose: a quarter turn of NHWC with dynamic sizes."""
    sketch = Sketch(image(2, 5, 7, 3), opset=15, dims=["n", "h", "w", 3])
    x = sketch.values["x"]
    moved = sketch.transpose("x", [2, 1, 0, 3])
    rows = sketch.op("Gather", [sketch.op("Shape", [moved], None), sketch.const([1])], None)
    length = sketch.op("Gather", [sketch.op("Shape", ["x"], None), sketch.const([2])], None)
    lengths = sketch.op("Expand", [length, rows], None)
    turned = sketch.op("ReverseSequence", [moved, lengths], sketch.values[moved][::-1], batch_axis=1, time_axis=0)
    y = sketch.transpose(turned, [2, 0, 1, 3])
    fused, report = fuses(sketch.model(y), sketch.feeds, {"Rot90": 1}, reference=[np.rot90(x, 1, (1, 2))], atol=0)
    assert len(fused.graph.node) == 1 and report.fused[0].nodes == 8


def test_tensorflow_flip_is_no_rotation(custom):
    """The same around one flip holds a rotation of other axes, but the chain as a whole is a flip."""
    sketch = Sketch(image(2, 5, 7, 3))
    y = sketch.transpose(sketch.flip(sketch.transpose("x", [1, 0, 2, 3]), [0]), [1, 0, 2, 3])
    model = sketch.model(y)
    fused, report = rewriter.fuse(model)
    assert fused == model and not report.fused and not report.missed


def test_gather_of_a_computed_range(fuses):
    """Indices Range(W - 1, -1, -1) of a dynamic W; ONNX Runtime's own optimizer gets the unfused model wrong."""
    sketch = Sketch(image(2, 3, 5, 7), dims=["n", 3, "h", "w"])
    one = sketch.const(-1)
    width = sketch.op("Gather", [sketch.op("Shape", ["x"], None), sketch.const(3)], None)
    index = sketch.op("Range", [sketch.op("Add", [width, one], None), one, one], None)
    flipped = sketch.op("Gather", ["x", index], sketch.values["x"][..., ::-1], axis=3)
    model = sketch.model(sketch.transpose(flipped, [0, 1, 3, 2]))
    fused, _ = fuses(model, sketch.feeds, {"Rot90": 1}, optimize=False, atol=0)
    assert len(fused.graph.node) == 1


def test_slice_bounds_from_shapes(fuses):
    """Slice from W - 1 down to -W - 1, both computed."""
    sketch = Sketch(image(1, 3, 5, 7), dims=[1, 3, "h", "w"])
    one = sketch.const([-1])
    width = sketch.op("Gather", [sketch.op("Shape", ["x"], None), sketch.const([3])], None)
    start = sketch.op("Add", [width, one], None)
    end = sketch.op("Sub", [one, width], None)
    flipped = sketch.op("Slice", ["x", start, end, sketch.const([3]), one], sketch.values["x"][..., ::-1])
    fuses(sketch.model(sketch.transpose(flipped, [0, 1, 3, 2])), sketch.feeds, {"Rot90": 1}, atol=0)


@pytest.mark.parametrize(("where", "op_type", "factor", "dtype"), [
    ("after", "Mul", 1.5, np.float32), ("before", "Mul", 0.1, np.float32), ("between", "Mul", -2.0, np.float16),
    ("after", "Div", 0.25, np.float32), ("between", "Div", -8.0, np.float64), ("after", "Mul", 0.1, np.float16),
    ("after", "Mul", 0.0, np.float32)])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1, 1)])
def test_scalar_beside_a_rotation(fuses, where, op_type, factor, dtype, shape):
    sketch = Sketch(image(2, 3, 5, 7, dtype=dtype))
    y = "x"
    for step in ("before", "flip", "between", "transpose", "after"):
        if step == where:
            y = sketch.scale(y, factor, op_type, shape, swap=op_type == "Mul")
        elif step == "flip":
            y = sketch.flip(y, [3])
        elif step == "transpose":
            y = sketch.transpose(y, [0, 1, 3, 2])
    fused, _ = fuses(sketch.model(y), sketch.feeds, {"CustomRotScale": 1}, reference=[sketch.values[y]], atol=0)
    (found,) = attributes(fused)
    assert found["dims"] == b"height,width" and found["rotations"] == 1
    assert found["scale_factor"] == (np.float32(factor) if op_type == "Mul" and dtype == np.float32 else
                                     np.float32(np.float16(factor)) if op_type == "Mul" else 1 / factor)


@pytest.mark.parametrize(("op_type", "factor", "dtype", "shape", "x_shape"), [
    ("Mul", 0.1, np.float64, (), (2, 3, 5, 7)),  # float32 cannot hold it
    ("Div", 255.0, np.float32, (), (2, 3, 5, 7)),  # its reciprocal is rounded
    ("Mul", 3, np.int32, (), (2, 3, 5, 7)),
    ("Mul", 1e-40, np.float32, (), (2, 3, 5, 7)),  # below the normal numbers, which some runtimes flush to 0
    ("Mul", 1.5, np.float32, (1, 1, 1), (5, 7)),  # it raises the rank
    ("Mul", 1.5, np.float32, (7, 1), (2, 3, 5, 7))])  # no scalar
def test_factors_that_stay_outside(fuses, op_type, factor, dtype, shape, x_shape):
    sketch = Sketch(image(*x_shape, dtype=dtype))
    rank = len(x_shape)
    turned = sketch.transpose(sketch.flip("x", [rank - 1]), [*range(rank - 2), rank - 1, rank - 2])
    y = sketch.scale(turned, factor, op_type, shape)
    fused, _ = fuses(sketch.model(y, dims=[None] * sketch.values[y].ndim), sketch.feeds, {"Rot90": 1}, atol=0)
    assert [node.op_type for node in fused.graph.node] == ["Rot90", op_type]


def test_a_factor_that_a_neighbour_takes_in_stays(custom):
    """ONNX Runtime folds a Mul into the Conv before it for nothing."""
    sketch = Sketch(image(1, 3, 5, 7))
    weight = sketch.const(image(2, 3, 1, 1), np.float32)
    y = sketch.scale(sketch.op("Conv", ["x", weight], image(1, 2, 5, 7)), 0.5)
    y = sketch.transpose(sketch.flip(y, [3]), [0, 1, 3, 2])
    fused, _ = rewriter.fuse(sketch.model(y))
    assert custom(fused) == {"Rot90": 1}


def test_two_factors(fuses):
    """The first is taken in, the other keeps its place in the order of the products."""
    sketch = Sketch(image(2, 3, 5, 7))
    y = sketch.scale(sketch.flip(sketch.scale(sketch.flip("x", [3]), 0.1), [2]), 0.7)
    fused, _ = fuses(sketch.model(y), sketch.feeds, {"CustomRotScale": 1}, reference=[sketch.values[y]], atol=0)
    assert [node.op_type for node in fused.graph.node] == ["CustomRotScale", "Mul"]


@pytest.mark.parametrize(("channels", "dims", "kept"), [
    (3, None, "NCHW"), (16, None, "NHWC"), (16, ["n", "a", "b", "c"], "as found")])
@pytest.mark.parametrize("to_last", [True, False])
@pytest.mark.parametrize("flip_first", [True, False])
def test_layout_and_half_turn(fuses, channels, dims, kept, to_last, flip_first):
    """A half turn and NCHW <-> NHWC: a rotation in the layout where the flips are cheaper, and one Transpose."""
    sketch = Sketch(image(2, channels, 5, 7) if to_last else image(2, 5, 7, channels), dims=dims)
    perm = [0, 2, 3, 1] if to_last else [0, 3, 1, 2]
    before, after = ((2, 3), (1, 2)) if to_last else ((1, 2), (2, 3))
    y = sketch.flip("x", before) if flip_first else "x"
    y = sketch.transpose(y, perm)
    y = y if flip_first else sketch.flip(y, after)
    fused, _ = fuses(sketch.model(y), sketch.feeds, {"Rot90": 1}, reference=[sketch.values[y]], atol=0)
    turn_first = {"NCHW": to_last, "NHWC": not to_last, "as found": flip_first}[kept]
    assert [n.op_type for n in fused.graph.node] == (["Rot90", "Transpose"] if turn_first else ["Transpose", "Rot90"])


@pytest.mark.parametrize("k", [1, 3])
def test_volumes_and_layout(fuses, k):
    """NCDHW -> NDHWC behind a quarter turn."""
    sketch = Sketch(image(1, 2, 3, 4, 5))
    y = sketch.transpose(sketch.flip("x", [4 if k == 1 else 3]), [0, 2, 4, 3, 1])
    fused, _ = fuses(sketch.model(y), sketch.feeds, {"Rot90": 1}, reference=[sketch.values[y]], atol=0)
    assert [n.op_type for n in fused.graph.node] == (["Transpose", "Rot90"] if k == 1 else ["Rot90", "Transpose"])


def test_turned_and_turned_back_vanishes(fuses):
    sketch = Sketch(image(2, 3, 5, 7))
    y = sketch.transpose(sketch.flip("x", [3]), [0, 1, 3, 2])
    y = sketch.transpose(sketch.flip(sketch.scale(y, 0.1), [2]), [0, 1, 3, 2])
    relu = sketch.op("Relu", [y], np.maximum(sketch.values[y], 0))
    fused, report = fuses(sketch.model(relu), sketch.feeds, {}, reference=[sketch.values[relu]], atol=0)
    assert [node.op_type for node in fused.graph.node] == ["Mul", "Relu"] and report.fused[0].operator is None


def test_an_output_keeps_its_name_where_nothing_is_left(fuses):
    sketch = Sketch(image(2, 3, 5, 7))
    y = sketch.flip(sketch.flip("x", [2, 3]), [3, 2])
    fused, _ = fuses(sketch.model(y), sketch.feeds, {}, reference=[sketch.values["x"]], atol=0)
    assert [node.op_type for node in fused.graph.node] == ["Identity"] and fused.graph.output[0].name == y


def test_turned_back_beyond_a_value_that_is_needed(fuses):
    """x turned is an output; turned back it is x again, whoever else reads what lies between."""
    sketch = Sketch(image(2, 3, 5, 7))
    turned = sketch.transpose(sketch.flip("x", [3]), [0, 1, 3, 2])
    back = sketch.transpose(sketch.flip(turned, [2]), [0, 1, 3, 2])
    again = sketch.op("Neg", [back], -sketch.values["x"])
    fused, _ = fuses(sketch.model(turned, again), sketch.feeds, {"Rot90": 1},
                     reference=[sketch.values[turned], sketch.values[again]], atol=0)
    assert [node.op_type for node in fused.graph.node] == ["Rot90", "Neg"]


def test_anti_transpose_and_cancelled_flips(fuses):
    """Flip, transpose, flip: an anti-transpose becomes a rotation and a cheap flip, a transpose just that."""
    for last, kept in ((3, ["Rot90", "Slice"]), (2, ["Transpose"])):
        sketch = Sketch(image(2, 3, 5, 7))
        y = sketch.flip(sketch.transpose(sketch.flip("x", [3]), [0, 1, 3, 2]), [last])
        fused, _ = fuses(sketch.model(y), sketch.feeds, {"Rot90": 1} if last == 3 else {}, reference=[sketch.values[y]],
                         atol=0)
        assert [node.op_type for node in fused.graph.node if node.op_type != "Constant"] == kept


def test_in_a_branch_with_the_image_from_outside(fuses):
    sketch = Sketch(image(2, 3, 5, 7))
    sketch.initializers = []
    inner = Sketch(sketch.values["x"])
    y = inner.transpose(inner.flip("x", [3]), [0, 1, 3, 2])
    infos = [helper.make_tensor_value_info(name, 1, [None] * 4) for name in (y, "same")]
    branch = helper.make_graph(inner.nodes, "turned", [], infos[:1], inner.initializers)
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["same"])], "plain", [], infos[1:])
    condition = sketch.input("condition", np.array(True))
    out = sketch.op("If", [condition], inner.values[y], then_branch=branch, else_branch=other)
    fuses(sketch.model(out), sketch.feeds, {"Rot90": 1}, reference=[inner.values[y]], atol=0)


@pytest.mark.parametrize("bounds", [([LAST], [FIRST]), ([-1], [-LAST]), ([6], [-8]), ([100], [-100])])
def test_legal_sentinels(fuses, bounds):
    sketch = Sketch(image(2, 3, 5, 7))
    y = sketch.transpose(sketch.slice("x", *bounds, [3], [-1]), [0, 1, 3, 2])
    fuses(sketch.model(y), sketch.feeds, {"Rot90": 1}, reference=[np.rot90(sketch.values["x"], 1, (2, 3))], atol=0)


def test_the_report_says_what_was_found():
    sketch = Sketch(image(2, 3, 5, 7))
    _, report = rewriter.fuse(sketch.model(sketch.scale(sketch.flip("x", [2, 3]), 1.5)))
    (found,) = report.fused
    assert (found.operator, found.nodes) == ("CustomRotScale", 2)
    assert found.note == "a half turn in the plane of axes 2 and 3, times 1.5, from 2 nodes"
