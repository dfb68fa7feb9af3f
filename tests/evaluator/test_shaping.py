"""Tensors made out of sizes, against ONNX Runtime, and sizes that only a hostile file asks for."""

from __future__ import annotations

import resource

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

INT_TYPES = (np.int16, np.int32, np.int64)


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize(("name", "value"), [
    ("value_int", 3), ("value_ints", [1, 2]), ("value_float", 0.1), ("value_floats", [0.1, 0.2])])
def test_constant_of_numbers(agrees, name, value):
    agrees("Constant", [], **{name: value})


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float16, np.float32, np.float64, bool])
def test_constant_tensor(agrees, dtype):
    for array in (np.array(1, dtype), np.ones((2, 3), dtype), np.ones((0, 2), dtype)):
        agrees("Constant", [], value=onnx.numpy_helper.from_array(array))


def test_constants_that_are_no_numbers_decline(declines):
    assert "dense" in declines("Constant", [], value_string="text")


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_constant_of_shape(agrees, shape):
    assert agrees("ConstantOfShape", [ints(*shape)])[0].dtype == np.float32
    agrees("ConstantOfShape", [ints(*shape)], value=onnx.numpy_helper.from_array(ints(7)))
    agrees("ConstantOfShape", [ints(*shape)], value=onnx.numpy_helper.from_array(np.array([True])))


@pytest.mark.parametrize("dtype", [*INT_TYPES, np.float32, np.float64])
@pytest.mark.parametrize(("start", "limit", "delta"), [
    (0, 5, 1), (5, 0, -2), (5, 0, -5), (0, -3, 1), (3, 3, 1), (10, 0, -3), (-4, 9, 5)])
def test_range(agrees, dtype, start, limit, delta):
    agrees("Range", [np.array(v, dtype) for v in (start, limit, delta)])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.floats(-2, 2, width=32), st.floats(-2, 2, width=32), st.sampled_from((0.1, -0.1, 0.3, 1 / 3, -1 / 7)))
def test_range_of_fractions(agrees, start, limit, delta):
    for dtype in (np.float32, np.float64):
        agrees("Range", [np.array(v, dtype) for v in (start, limit, delta)])


def test_endless_ranges_decline(declines):
    assert "step 0" in declines("Range", [np.array(v) for v in (0, 5, 0)])
    assert declines("Range", [np.array(v, np.float32) for v in (0, np.inf, 1)])
    assert declines("Range", [np.array(v, np.float32) for v in (0, np.nan, 1)])


@pytest.mark.parametrize("offset", [0, 1, -1, 9, -9])
def test_eye_like(agrees, declines, offset):
    agrees("EyeLike", [np.ones((2, 3), np.float32)], k=offset)
    agrees("EyeLike", [np.ones((3, 2), np.int64)], k=offset, dtype=onnx.TensorProto.DOUBLE)
    assert declines("EyeLike", [np.ones(3, np.float32)], k=offset)


def test_non_zero(agrees):
    agrees("NonZero", [np.array([[0, 2, 0], [1, 0, -1]], np.float32)])
    agrees("NonZero", [np.array([True, False, True])])
    agrees("NonZero", [np.zeros((2, 2), np.int64)])


@pytest.mark.parametrize("axis", [-1, 0, 1, -2])
@pytest.mark.parametrize("depth", [np.array(3), ints(3)])
def test_one_hot(agrees, axis, depth):
    off_on = np.array([5, 7], np.float32)
    agrees("OneHot", [ints(0, 2, -1, -3), depth, off_on], axis=axis)
    hot, = agrees("OneHot", [ints(3, -4, 9), depth, off_on], axis=axis)  # out of range: hot nowhere
    assert hot.tolist() == np.full(hot.shape, 5).tolist()


def test_one_hot_of_a_matrix(agrees):
    agrees("OneHot", [ints([0, 1], [2, 0]), np.array(3), ints(0, 1)], axis=1)


@pytest.mark.parametrize(("start", "end"), [(None, None), (1, None), (None, -1), (-2, 9), (-9, 2), (2, 1)])
def test_shape_and_size(agrees, start, end):
    limits = {k: v for k, v in (("start", start), ("end", end)) if v is not None}
    agrees("Shape", [np.zeros((2, 0, 4), np.float32)], **limits)
    agrees("Shape", [np.zeros((), np.float32)], **limits)
    agrees("Size", [np.zeros((2, 3, 4), np.float32)])
    agrees("Size", [np.zeros((), np.float32)])


LARGE = 1 << 40
PAIR = np.zeros(1 << 15, np.float32)


@pytest.mark.parametrize(("op", "arrays", "options"), [
    ("Expand", [np.ones(1, np.float32), ints(LARGE)], {}),
    ("Expand", [np.ones(1, np.float32), ints(*[1 << 20] * 4)], {}),
    ("Tile", [np.ones(2, np.float32), ints(LARGE)], {}),
    ("Tile", [np.ones(2, np.float32), ints(1, LARGE)], {}),
    ("ConstantOfShape", [ints(LARGE)], {}),
    ("ConstantOfShape", [ints(1 << 62, 1 << 62)], {}),
    ("ConstantOfShape", [ints(-1)], {}),
    ("Range", [np.array(0), np.array(LARGE), np.array(1)], {}),
    ("Range", [np.array(v, np.float32) for v in (0, 1, 1e-30)], {}),
    ("Pad", [np.ones(1, np.float32), ints(LARGE, 0)], {}),
    ("Pad", [np.ones(1, np.float32), ints(LARGE, -LARGE)], {}),
    ("OneHot", [np.arange(4), np.array(LARGE), ints(0, 1)], {}),
    ("Add", [PAIR, PAIR[:, None]], {}),
    ("Where", [PAIR > 0, PAIR[:, None], PAIR], {}),
    ("Max", [PAIR, PAIR[:, None], PAIR], {}),
    ("Gather", [PAIR[None], np.zeros(1 << 15, np.int64)], {}),
    ("GatherND", [PAIR[None], np.zeros((1 << 15, 1), np.int64)], {}),
])
def test_absurd_sizes_are_refused_before_anything_is_allocated(declines, op, arrays, options):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert declines(op, arrays, **options)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 17  # KiB


def test_absurd_concatenations_are_refused(declines):
    piece = np.zeros(1 << 20, np.float32)
    assert "too large" in declines("Concat", [piece] * 128, axis=0)
