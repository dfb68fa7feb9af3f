"""What is malformed gives an error with the node's name, when the session is made or when it runs; never a crash."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_models import kernel_session, node_model, run_node

X = np.ones((2, 3, 4, 5), np.float32)
THETA = np.ones((2, 2, 3), np.float32)
SIZE = np.array((1, 1, 4, 5))


def sample(x=X, theta=THETA, size=SIZE):
    return {"x": x, "theta": theta, "size": np.asarray(size)}


@pytest.mark.parametrize(("op_type", "attributes", "said"), [
    ("Rot90", {"k": 1.5}, "k must be an int"),
    ("Rot90", {"k": "1"}, "k must be an int"),
    ("Rot90", {"axes": [1]}, "axes must be two ints"),
    ("Rot90", {"axes": [0, 1, 2]}, "axes must be two ints"),
    ("Rot90", {"axes": 1}, "axes must be two ints"),
    ("CustomRotScale", {"rotations": [1]}, "rotations must be an int"),
    ("CustomRotScale", {"scale_factor": 2}, "scale_factor must be a float"),
    ("CustomRotScale", {"dims": 1}, "dims must be a string"),
    ("CustomRotScale", {"dims": "height"}, 'dims must be two comma separated axes, .*got "height"'),
    ("CustomRotScale", {"dims": "height,width,depth"}, "dims must be two comma separated axes"),
    ("CustomRotScale", {"dims": "rows,columns"}, "dims must be two comma separated axes"),
    ("CustomRotScale", {"dims": ""}, "dims must be two comma separated axes"),
    ("CustomRotScale", {"dims": "%s%n," * 100}, "dims must be two comma separated axes"),
])
def test_attributes_of_turns(op_type, attributes, said):
    with pytest.raises(Exception, match=rf"custom\.ops::{op_type} 'turn / 1': {said}"):
        kernel_session(node_model(op_type, {"x": X}, attributes, node="turn / 1"))


@pytest.mark.parametrize(("attributes", "said"), [
    ({"mode": "area"}, 'mode must be linear, nearest or cubic, got "area"'),
    ({"mode": 1}, "mode must be a string"),
    ({"padding_mode": "wrap"}, 'padding_mode must be zeros, border or reflection, got "wrap"'),
    ({"align_corners": 2}, "align_corners must be 0 or 1, got 2"),
    ({"grid_align_corners": -1}, "grid_align_corners must be 0 or 1, got -1"),
    ({"align_corners": 1.0}, "align_corners must be an int"),
])
def test_attributes_of_grids(attributes, said):
    with pytest.raises(Exception, match=rf"custom\.ops::AffineGridSample 'node': {said}"):
        kernel_session(node_model("AffineGridSample", sample(), attributes))


@pytest.mark.parametrize(("op_type", "x", "attributes", "said"), [
    ("Rot90", X[0], {"axes": (3, 1)}, r"axes must be two distinct axes of a rank-3 tensor, got \[3, 1\]"),
    ("Rot90", X, {"axes": (1, -3)}, r"axes must be two distinct axes of a rank-4 tensor, got \[1, -3\]"),
    ("Rot90", X[0, 0, 0], {}, r"axes must be two distinct axes of a rank-1 tensor, got \[0, 1\]"),
    ("Rot90", X[0, 0, 0, 0, ...], {}, "axes must be two distinct axes of a rank-0 tensor"),
    ("Rot90", X, {"axes": (2**62, -(2**63))}, "axes must be two distinct axes"),
    ("CustomRotScale", X[0, 0], {"dims": "depth,width"}, r"dims must be two distinct axes .*, got \[-3, -1\]"),
    ("CustomRotScale", X, {"dims": "height,2"}, "dims must be two distinct axes"),
    ("CustomRotScale", X, {"dims": "99999999999999999999,1"}, "dims must be two distinct axes"),
])
def test_planes(op_type, x, attributes, said):
    with pytest.raises(Exception, match=rf"custom\.ops::{op_type} 'node': {said}"):
        run_node(op_type, {"x": np.asarray(x)}, attributes, shapes={"x": None})


@pytest.mark.parametrize(("operands", "said"), [
    (sample(size=[1, 1, 4]), r"size must have the shape \[4\] or \[5\], got \[3\]"),
    (sample(size=[[1, 1, 4, 5]]), r"size must have the shape \[4\] or \[5\], got \[1, 4\]"),
    (sample(size=[1, 1, 0, 5]), r"size must hold .* spatial axes of 1 or more, got \[1, 1, 0, 5\]"),
    (sample(size=[1, 1, 4, -5]), "size must hold"),
    (sample(size=[-1, 1, 4, 5]), "size must hold"),
    (sample(size=[1, 1, 4, 5, 6]), r"theta must have the shape \[N, 3, 4\] for a size of 5 values, got \[2, 2, 3\]"),
    (sample(theta=THETA[0]), r"theta must have the shape \[N, 2, 3\] for a size of 4 values, got \[2, 3\]"),
    (sample(theta=THETA[:, :, :2]), r"theta must have the shape .* got \[2, 2, 2\]"),
    (sample(size=[3, 1, 4, 5]), r"theta's batch 2 and size\[0\] = 3 are neither equal nor 1"),
    (sample(x=X[0]), r"x must have 4 axes for a size of 4 values, got \[3, 4, 5\]"),
    (sample(x=X[:1]), "x has the batch 1, the grid 2"),
    (sample(x=X[:, :, :0]), r"x must have spatial axes of 1 or more, got \[2, 3, 0, 5\]"),
    (sample(size=[1, 1, 2**40, 2**40]), "an output of .* is too large"),
    (sample(size=[1, 1, 2**63 - 1, 2**63 - 1]), "an output of .* is too large"),
])
def test_shapes_of_grids(operands, said):
    with pytest.raises(Exception, match=rf"custom\.ops::AffineGridSample 'node': {said}"):
        run_node("AffineGridSample", operands)


def test_shapes_of_a_grid_alone():
    for size, said in (([3, 1, 4, 5], "theta's batch"), ([1, 1, 4, 0], "size must hold"), ([1], "size must have"),
                       ([1, 1, 2**62, 3], "an output of .* is too large")):
        with pytest.raises(Exception, match=rf"custom\.ops::AffineGrid 'node': {said}"):
            run_node("AffineGrid", {"theta": THETA, "size": np.array(size)})


def test_cubic_is_for_images():
    operands = sample(np.ones((1, 1, 2, 3, 4), np.float32), np.ones((1, 3, 4), np.float32), [1, 1, 2, 2, 2])
    with pytest.raises(Exception, match="mode cubic is for images"):
        run_node("AffineGridSample", operands, {"mode": "cubic"})


def test_an_output_beyond_memory_is_an_error():
    with pytest.raises(Exception, match="AffineGrid"):
        run_node("AffineGrid", {"theta": THETA, "size": np.array([1, 1, 2**22, 2**22])})


def test_long_names_and_shapes_are_cut():
    name = "a/very/long/name/" * 100
    with pytest.raises(Exception, match="axes must be two distinct axes") as caught:
        run_node("Rot90", {"x": X}, {"axes": (7, 8)}, node=name)
    assert name in str(caught.value)
    x = np.ones((1,) * 60, np.float32)
    with pytest.raises(Exception, match=r"x must have 4 axes .* got \[1, 1, .*, \.\.\.\]"):
        run_node("AffineGridSample", sample(x=x))


def test_an_absent_operand_does_not_load():
    with pytest.raises(Exception, match="AffineGridSample"):
        kernel_session(node_model("AffineGridSample", {"x": X, "theta": THETA}))
