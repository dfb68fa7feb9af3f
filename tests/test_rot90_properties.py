"""Random chains of up to twelve flips, transposes and factors, in every spelling, with and without an impostor.

`properties.py` sets the number of examples.
"""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from properties import EXAMPLES
from rotations import Sketch

import rewriter

DTYPES = [np.float32, np.float16, np.float64, np.int32, np.uint8]
FACTORS = [0.5, -2.0, 0.1, 3.0]
SPELLINGS = ["slice", "far", "exact", "gather", "gather_negative", "split"]
DYNAMIC = ["slice", "far"]  # those whose indices hold for every length


@st.composite
def chains(draw):
    """(sketch, names of the outputs): a random walk from x."""
    rank = draw(st.integers(2, 5))
    shape = draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    dtype = draw(st.sampled_from(DTYPES))
    dynamic = draw(st.booleans())
    if np.dtype(dtype).kind in "iu":
        shape[0] += 8  # smaller integer inputs are taken for sizes
    count = int(np.prod(shape))
    x = (np.arange(count).reshape(shape) % 50 + 1).astype(dtype)
    dims = [f"d{i}" for i in range(rank)] if dynamic else None
    sketch = Sketch(x, opset=draw(st.sampled_from([11, 13, 17, 20])), dims=dims)
    y, outputs = "x", []
    impostor = draw(st.one_of(st.none(), st.integers(0, 11)))
    for i in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["transpose", "swap", "flip", "flip", "scale", "map", "identity"]))
        if i == impostor:
            y = imposter(draw, sketch, y)
        elif kind == "transpose":
            y = sketch.transpose(y, list(draw(st.permutations(range(rank)))))
        elif kind == "swap":
            perm = list(range(rank))
            a, b = draw(st.lists(st.integers(0, rank - 1), min_size=2, max_size=2, unique=True))
            perm[a], perm[b] = perm[b], perm[a]
            y = sketch.transpose(y, perm)
        elif kind == "flip":
            axes = draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=2, unique=True))
            y = sketch.flip(y, axes, draw(st.sampled_from(DYNAMIC if dynamic else SPELLINGS)))
        elif kind == "scale" and sketch.values[y].dtype.kind == "f":
            # ONNX Runtime multiplies float16 in float32, and may round once for several products
            factor = draw(st.sampled_from(FACTORS[:2] if dtype is np.float16 else FACTORS))
            y = sketch.scale(y, factor, "Div" if factor == 0.5 else "Mul", draw(st.sampled_from([(), (1,)])))
        elif kind == "map":
            y = elementwise(draw, sketch, y)
        else:
            y = sketch.op("Identity", [y], sketch.values[y])
        if draw(st.integers(0, 9)) == 0:
            outputs.append(y)  # others need it
    return sketch, list(dict.fromkeys([*outputs, y]))


def elementwise(draw, sketch, y):
    """Something exact that treats every element alike."""
    value = sketch.values[y]
    choices = ["cast"] if value.dtype.kind != "f" else ["cast", "relu", "neg", "sub"]
    kind = draw(st.sampled_from(choices))
    if kind == "cast":
        to = np.dtype(draw(st.sampled_from([np.float32, np.float64])))
        return sketch.op("Cast", [y], value.astype(to), to=onnx.helper.np_dtype_to_tensor_dtype(to))
    if kind == "relu":
        return sketch.op("Relu", [y], np.maximum(value, 0))
    if kind == "neg":
        return sketch.op("Neg", [y], -value)
    return sketch.op("Sub", [sketch.const(1, value.dtype), y], value.dtype.type(1) - value)


def imposter(draw, sketch, y):
    """Nearly a flip: a crop, a stride, a roll."""
    axis = draw(st.integers(0, sketch.values[y].ndim - 1))
    length = sketch.values[y].shape[axis]
    index = [slice(None)] * sketch.values[y].ndim
    kind = draw(st.sampled_from(["end", "step", "roll"]))
    if kind == "roll":
        order = np.roll(np.arange(length)[::-1], 1)
        return sketch.op("Gather", [y, sketch.const(order)], np.take(sketch.values[y], order, axis), axis=axis)
    index[axis] = slice(-1, 0 if kind == "end" and length > 1 else None, -1 if kind == "end" else -2)
    end = 0 if kind == "end" and length > 1 else -(2**63)
    return sketch.slice(y, [-1], [end], [axis], [index[axis].step], value=sketch.values[y][tuple(index)])


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(chains())
def test_random_chains(run, custom, tally, chain):
    sketch, outputs = chain
    model = sketch.model(*outputs)
    fused, report = rewriter.fuse(model)
    onnx.checker.check_model(fused, full_check=True)
    tally["fused" if report.fused else "declined" if report.missed else "nothing found"] += 1
    event(f"fused: {', '.join(str(f.operator) for f in report.fused) or 'nothing'}")
    got = run(fused, sketch.feeds)
    for name in outputs:
        np.testing.assert_array_equal(got[name], sketch.values[name])
    again, second = rewriter.fuse(fused)
    assert again == fused and not second.fused
    assert report.nodes_after <= report.nodes_before
    assert sum(custom(fused).values()) <= len(report.fused)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_rotation_is_found_whatever_it_is_made_of(run, custom, tally, data):
    """A chain completed to a rotation by its own inverse becomes exactly that one node."""
    rank = data.draw(st.integers(2, 5))
    shape = data.draw(st.lists(st.integers(3, 4), min_size=rank, max_size=rank))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    sketch = Sketch(x)
    k = data.draw(st.integers(1, 3))
    plane = tuple(sorted(data.draw(st.lists(st.integers(0, rank - 1), min_size=2, max_size=2, unique=True))))
    want, y = np.rot90(x, k, plane), "x"
    for _ in range(data.draw(st.integers(0, 5))):
        if data.draw(st.booleans()):
            y = sketch.transpose(y, list(data.draw(st.permutations(range(rank)))))
        else:
            axis = data.draw(st.integers(0, rank - 1))
            y = sketch.flip(y, [axis], data.draw(st.sampled_from(SPELLINGS)))
    # where an element's neighbours went tells how the axes lie now, and how they must lie in the end
    perm = [_axis_of(sketch.values[y], _step(want, axis)) for axis in range(rank)]
    y = sketch.transpose(y, perm)
    flips = [axis for axis in range(rank) if _step(sketch.values[y], axis) != _step(want, axis)]
    if flips:
        y = sketch.flip(y, flips)
    np.testing.assert_array_equal(sketch.values[y], want)
    model = sketch.model(y)
    fused, report = rewriter.fuse(model)
    tally["fused" if report.fused else "declined"] += 1
    assert custom(fused) == {"Rot90": 1}
    (node,) = fused.graph.node
    found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert (found["k"], tuple(found["axes"])) == (k, plane)
    np.testing.assert_array_equal(run(fused, sketch.feeds)[y], want)


def _step(array, axis) -> int:
    """The difference between neighbours along an axis."""
    return int(np.diff(array, axis=axis).flat[0])


def _axis_of(array, step) -> int:
    return next(axis for axis in range(array.ndim) if abs(_step(array, axis)) == abs(step))
