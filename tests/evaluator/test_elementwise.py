"""Arithmetic, comparison and reduction against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

INTEGERS = (np.int32, np.int64)
FLOATS = (np.float16, np.float32, np.float64)
NUMBERS = (*INTEGERS, *FLOATS)
SMALL = st.integers(-12, 12)
quick = settings(max_examples=50, deadline=None, derandomize=True)


def filled(shape, dtype, seed=0, scale=4):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


@st.composite
def operands(draw, count, dtypes=NUMBERS, elements=SMALL):
    """Arrays of one dtype that broadcast, 0-d and empty ones among them; floats are multiples of a quarter."""
    dtype = draw(st.sampled_from(dtypes))
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=count, min_dims=0, max_dims=3, min_side=0, max_side=3))
    scale = 1 if np.dtype(dtype).kind in "iu" else 0.25
    return [draw(hnp.arrays(np.int64, shape, elements=elements)).astype(dtype) * np.dtype(dtype).type(scale)
            for shape in shapes.input_shapes]


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
@quick
@given(pair=operands(2))
def test_binary(agrees, op, pair):
    agrees(op, pair)


@pytest.mark.parametrize("op", ["Min", "Max"])
@quick
@given(some=operands(3))
def test_choice(agrees, op, some):
    agrees(op, some)


@quick
@given(some=operands(3, FLOATS))
def test_sum(agrees, some):
    agrees("Sum", some)


@quick
@given(some=operands(3, (np.float32,)))
def test_mean(agrees, some):
    agrees("Mean", some)


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
@quick
@given(pair=operands(2, (bool,), st.booleans()))
def test_logic(agrees, op, pair):
    agrees(op, [a.astype(bool) for a in pair])


@quick
@given(pair=operands(2, elements=SMALL.filter(bool)))
def test_division(agrees, pair):
    agrees("Div", pair)


@pytest.mark.parametrize("fmod", [0, 1])
@quick
@given(pair=operands(2, INTEGERS, SMALL.filter(bool)))
def test_remainder_of_integers(agrees, pair, fmod):
    agrees("Mod", pair, fmod=fmod)


@quick
@given(pair=operands(2, FLOATS, SMALL.filter(bool)))
def test_remainder_of_floats(agrees, pair):
    agrees("Mod", pair, fmod=1)


def test_integer_division_truncates(agrees, declines):
    a, b = np.array([7, -7, 7, -7, 6, 0]), np.array([2, 2, -2, -2, -3, 5])
    assert agrees("Div", [a, b])[0].tolist() == [3, -3, -3, 3, -2, 0]
    assert agrees("Mod", [a, b])[0].tolist() == [1, 1, -1, -1, 0, 0]
    lowest = np.array([np.iinfo(np.int64).min] * 2)
    assert agrees("Div", [lowest, np.array([2, 3])])[0].tolist() == [-(2**62), -3074457345618258602]
    assert "zero" in declines("Div", [a, np.array(0)])
    assert "zero" in declines("Mod", [a, np.array(0)])


@pytest.mark.parametrize("dtype", NUMBERS)
def test_power(agrees, dtype):
    base = np.abs(filled((2, 3), dtype, scale=2)) + np.dtype(dtype).type(1)
    agrees("Pow", [base, np.array(2, dtype)])
    agrees("Pow", [base, np.array([3], np.int64)])
    agrees("Pow", [base, np.array(2.0, np.float32)])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["Sqrt", "Exp", "Log", "Sin", "Cos", "Tan", "Tanh", "Reciprocal"])
def test_functions(agrees, op, dtype):
    agrees(op, [np.abs(filled(9, dtype, scale=1)) + dtype(0.5)])


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding(agrees, dtype):
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.25, -0.0], dtype)
    assert agrees("Round", [halves])[0].tolist() == [0, 2, 2, 0, -2, 2, 0]
    agrees("Floor", [halves])
    agrees("Ceil", [halves])


@pytest.mark.parametrize("op", ["Neg", "Abs", "Sign", "Identity"])
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_unary(agrees, op, dtype, shape):
    agrees(op, [filled(shape, dtype)])


def test_not(agrees):
    agrees("Not", [np.array([True, False])])


def test_not_numbers(agrees):
    odd = np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    assert agrees("IsNaN", [odd])[0].tolist() == [False, False, True, False]
    assert agrees("IsInf", [odd])[0].tolist() == [True, True, False, False]
    assert agrees("IsInf", [odd], detect_negative=0)[0].tolist() == [True, False, False, False]
    assert agrees("IsInf", [odd], detect_positive=0)[0].tolist() == [False, True, False, False]
    agrees("Max", [odd, np.zeros(1, np.float32)])
    agrees("Min", [odd, np.zeros(1, np.float32)])


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize(("low", "high"), [(-1, 1), (None, 1), (-1, None), (None, None), (2, 1)])
def test_clip(agrees, dtype, low, high):
    bounds = [None if b is None else np.array(b, dtype) for b in (low, high)]
    agrees("Clip", [filled((3, 4), dtype), *bounds])
    agrees("Clip", [filled((), dtype), *bounds])


def test_clip_attributes_and_odd_bounds(agrees, declines):
    agrees("Clip", [filled(5, np.float32)], opset=10, min=-1.0, max=0.5)
    scalar = agrees("Clip", [np.array(5.0, np.float32), np.zeros(1, np.float32), np.ones(1, np.float32)])[0]
    assert scalar.shape == ()
    assert declines("Clip", [filled(5, np.float32), np.zeros(2, np.float32)])


@pytest.mark.parametrize("dtype", [*NUMBERS, bool])
def test_where(agrees, dtype):
    agrees("Where", [np.array([True, False]), filled((3, 1), dtype), filled((), dtype, 1)])
    agrees("Where", [np.array([[True], [False]]), filled((1, 3), dtype), filled((2, 3), dtype, 1)])


@pytest.mark.parametrize("source", [*NUMBERS, bool])
@pytest.mark.parametrize("target", [*NUMBERS, bool])
def test_cast(agrees, source, target):
    array = filled(7, source, scale=9)
    agrees("Cast", [array], to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(target)))
    agrees("CastLike", [array, np.zeros(1, target)])


def test_cast_rounds_once(agrees):
    large = np.array([2049, 70000, 2**24 + 1, 2**53 + 1, -(2**62) - 2**38 - 1])
    agrees("Cast", [large], to=onnx.TensorProto.FLOAT)
    agrees("Cast", [large[:1]], to=onnx.TensorProto.FLOAT16)
    agrees("Cast", [np.array([0.1, 1e6, -65520])], to=onnx.TensorProto.FLOAT16)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, -(2.0**63) * 1.5])
def test_undefined_casts_decline(declines, value):
    array = np.array([0, value], np.float32)
    assert "cannot hold" in declines("Cast", [array], to=onnx.TensorProto.INT64)
    assert "cannot hold" in declines("CastLike", [array, np.zeros(1, np.int32)])


def test_casts_at_the_limits(agrees, declines):
    assert agrees("Cast", [np.array([-(2.0**63), 2.0**62])], to=onnx.TensorProto.INT64)[0].tolist() == [-(2**63), 2**62]
    assert declines("Cast", [np.array([2.0**63])], to=onnx.TensorProto.INT64)
    assert agrees("Cast", [np.array([-0.9, 255.9])], to=onnx.TensorProto.UINT8)[0].tolist() == [0, 255]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_cumsum(agrees, dtype, exclusive, reverse, axis):
    agrees("CumSum", [filled((3, 4), dtype), np.array(axis)], exclusive=exclusive, reverse=reverse)


def test_exclusive_cumsum_of_infinity(agrees):
    total, = agrees("CumSum", [np.array([1, np.inf, 2], np.float32), np.array(0, np.int32)], exclusive=1)
    assert total.tolist() == [0, 1, np.inf]
    assert agrees("CumSum", [np.zeros((0, 2), np.float32), np.array(0)], exclusive=1)[0].shape == (0, 2)


REDUCTIONS = ["ReduceSum", "ReduceMean", "ReduceProd", "ReduceMin", "ReduceMax"]


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions(agrees, op, dtype, keepdims):
    array = filled((2, 3, 4), dtype, scale=2)
    for axes in ([-1], [0, 2], [1, -3], []):
        agrees(op, [array, np.array(axes, np.int64)], keepdims=keepdims)
    agrees(op, [array], keepdims=keepdims)
    agrees(op, [filled((), dtype)], keepdims=keepdims)
    agrees(op, [array], keepdims=keepdims, opset=11, axes=[0, -1])
    agrees(op, [array], keepdims=keepdims, opset=11)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_empty_axes_mean_nothing_only_where_said(agrees, op):
    array = filled((2, 3), np.float32)
    assert agrees(op, [array, np.zeros(0, np.int64)])[0].shape == (1, 1)
    assert agrees(op, [array, np.zeros(0, np.int64)], noop_with_empty_axes=1)[0].shape == (2, 3)
    assert agrees(op, [array], noop_with_empty_axes=1)[0].shape == (2, 3)


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64, bool])
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("offset", [None, -1, 0, 2, 9, -9])
def test_trilu(agrees, dtype, upper, offset):
    agrees("Trilu", [filled((2, 3, 4), dtype), None if offset is None else np.array(offset)], upper=upper)


def test_trilu_of_a_vector_declines(declines):
    assert "matrix" in declines("Trilu", [np.ones(3, np.float32)])
