"""Rot90 and CustomRotScale on the kernels against numpy: every dtype, rank, plane and turn; bit for bit."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from kernel_models import kernel_session, node_model, run_node
from onnx import TensorProto, helper

from patterns.operators.rot90 import CUSTOM_ROT_SCALE, ROT90

RNG = np.random.default_rng(5)
NATIVE = [np.dtype(kind) for kind in (
    "float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")]
NARROW = {"bfloat16": ml_dtypes.bfloat16, "float8e4m3fn": ml_dtypes.float8_e4m3fn, "float8e5m2": ml_dtypes.float8_e5m2,
          "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz}
NIBBLES = {"int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4}
# shape and plane: neighbouring and distant axes, lengths of 0 and 1, blocks beyond any vector's width, tails
PLACES = [
    ((3, 5), (0, 1)), ((2, 3, 33, 65), (2, 3)), ((2, 19, 3, 21), (1, 3)), ((17, 2, 3, 9), (0, 1)),
    ((9, 2, 3, 17), (0, 3)), ((1, 7), (0, 1)), ((7, 1), (0, 1)), ((1, 1), (0, 1)),
    ((2, 0, 3), (1, 2)), ((0, 2, 3), (1, 2)), ((2, 3, 0), (0, 1)),
    ((2, 1, 3, 1, 2, 3), (2, 5)), ((128, 130), (0, 1)), ((3, 64, 64), (-1, -2)), ((4, 5, 6), (-1, 0))]


def elements(shape, dtype) -> np.ndarray:
    """Random bits: NaN payloads and signed zeros among floats."""
    if dtype == np.bool_:
        return RNG.integers(0, 2, shape).astype(bool)
    return np.frombuffer(RNG.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)


@pytest.mark.parametrize("dtype", NATIVE, ids=str)
def test_rot90_moves_bits(dtype):
    for (shape, axes), k in itertools.product(PLACES, (-1, 0, 1, 2, 3, 6)):
        x = elements(shape, dtype)
        y = run_node("Rot90", {"x": x}, {"k": k, "axes": axes})
        want = ROT90.reference(x, k=k, axes=axes)
        assert y.dtype == dtype and y.shape == want.shape
        assert y.tobytes() == want.tobytes(), (shape, axes, k)


@pytest.mark.parametrize("name", NARROW)
def test_rot90_of_floats_without_a_numpy_dtype(name):
    x = RNG.standard_normal((2, 33, 18)).astype(NARROW[name]).astype(np.float32)
    for k in (1, 2, 3):
        y = run_node("Rot90", {"x": x}, {"k": k, "axes": (1, 2)}, narrow=getattr(TensorProto, name.upper()), opset=19,
                     ir_version=9)
        np.testing.assert_array_equal(y, np.rot90(x, k, (1, 2)))


@pytest.mark.parametrize("name", NIBBLES)
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4), (3, 3, 3)])
def test_rot90_of_nibbles(name, shape):
    x = RNG.integers(0, 8, shape).astype(np.float32)
    kind = getattr(TensorProto, name.upper())
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [1.0])
    zero = helper.make_tensor("zero", kind, [], [0])
    for k in (1, 2, 3):
        nodes = [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
                 helper.make_node("Rot90", ["q"], ["r"], domain="custom.ops", k=k, axes=(0, 1)),
                 helper.make_node("DequantizeLinear", ["r", "scale", "zero"], ["y"])]
        graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [scale, zero])
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("custom.ops", 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
        np.testing.assert_array_equal(kernel_session(model).run(None, {"x": x})[0], np.rot90(x, k))


def test_rot90_of_strings():
    x = np.array(["", "é", "a\0b", "long " * 50, "x", "y"], object).reshape(2, 3)
    for k in range(4):
        np.testing.assert_array_equal(run_node("Rot90", {"x": x}, {"k": k, "axes": (0, 1)}), np.rot90(x, k))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_rot_scale(dtype):
    dims = ["height,width", "width,height", " depth , 0", "1,2", "-1,-3"]
    for (words, rotations, scale) in itertools.product(dims, (-1, 0, 1, 2, 3), (1.0, 0.1, -3.0, float("inf"))):
        x = (RNG.standard_normal((2, 3, 17, 34)) * 10).astype(dtype)
        x[0, 0, 0, :3] = np.nan, np.inf, -0.0
        attributes = {"rotations": rotations, "scale_factor": float(np.float32(scale)), "dims": words}
        with np.errstate(all="ignore"):
            want = CUSTOM_ROT_SCALE.reference(x, **attributes)
        np.testing.assert_array_equal(run_node("CustomRotScale", {"x": x}, attributes), want, err_msg=str(attributes))


def test_rot_scale_of_bfloat16_rounds_once():
    x = RNG.standard_normal((2, 17, 34)).astype(ml_dtypes.bfloat16)
    attributes = {"rotations": 1, "scale_factor": float(np.float32(0.1)), "dims": "height,width"}
    y = run_node("CustomRotScale", {"x": x.astype(np.float32)}, attributes, narrow=TensorProto.BFLOAT16)
    np.testing.assert_array_equal(y, CUSTOM_ROT_SCALE.reference(x, **attributes).astype(np.float32))


def test_defaults_and_attributes_of_others():
    x = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(run_node("Rot90", {"x": x}), np.rot90(x))
    others = {"perm": [0, 2, 1], "flip": -1, "other": "s"}
    np.testing.assert_array_equal(run_node("Rot90", {"x": x}, others), np.rot90(x))
    np.testing.assert_array_equal(run_node("CustomRotScale", {"x": x}), np.rot90(x, 1, (-2, -1)))


@pytest.mark.parametrize(("declared", "inferred"), [
    (("n", 3, "w"), ["n", "w", 3]), ((2, 3, 4), [2, 4, 3]), ((None, 3, 4), []), (None, [])])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.float64])
def test_shapes_are_inferred_where_dims_have_names(declared, inferred, dtype):
    x = np.ones((2, 3, 4), dtype)
    for op_type, attributes in (("Rot90", {"k": 3, "axes": (1, 2)}), ("CustomRotScale", {"rotations": 3})):
        if op_type == "CustomRotScale" and dtype == np.uint8:
            continue
        session = kernel_session(node_model(op_type, {"x": x}, attributes, shapes={"x": declared}))
        (y,) = session.get_outputs()
        assert y.shape == inferred
        (got,) = session.run(None, {"x": x})
        assert got.shape == (2, 4, 3) and got.dtype == dtype
