"""The float64 run is nearer to the truth than float32 is, in every way it can be made."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import feeds, plain, stn

import rewriter
from rewriter.comparing.float64 import Float64


def values(model, arrays, tmp_path):
    onnx.save(model, tmp_path / "m.onnx")
    return Float64().values(str(tmp_path / "m.onnx"), "", arrays)


def test_by_onnxruntime(tmp_path):
    x = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
    outputs, how = values(plain(("Sin", "Sin")), {"x": x}, tmp_path)
    assert outputs["y"].dtype == np.float64
    assert np.abs(outputs["y"] - np.sin(np.sin(x.astype(np.float64)))).max() < 1e-15
    assert how == "all of it in ONNX Runtime"


def test_a_sampler(tmp_path, run):
    exact, _ = values(stn(), feeds(), tmp_path)
    off = np.abs(run(stn(), feeds())["y"] - exact["y"]).max()
    assert 0 < off < 1e-4


def test_functions_are_inlined(tmp_path):
    fused, _ = rewriter.fuse(stn())
    assert np.abs(values(fused, feeds(), tmp_path)[0]["y"] - values(stn(), feeds(), tmp_path)[0]["y"]).max() < 1e-5


def convolution(op="Conv", **attributes):
    weight = numpy_helper.from_array(np.full((1, 1, 3, 3), 0.1, np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Exp", ["c"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 5, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 3, 3])], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_node_by_node(tmp_path):
    outputs, how = values(convolution(), {"x": np.ones((1, 1, 5, 5), np.float32)}, tmp_path)
    assert how == "in ONNX Runtime, Conv in onnx's reference evaluator"
    assert np.abs(outputs["y"] - np.exp(9 * np.float64(np.float32(0.1)))).max() < 1e-14


def test_attributes_and_resize(tmp_path):
    nodes = [helper.make_node("Constant", [], ["half"], value_float=0.5),
             helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
             helper.make_node("Mul", ["wide", "half"], ["m"]),
             helper.make_node("Resize", ["m", "", "scales"], ["y"], mode="nearest")]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [1, 1, 2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 4, 4])],
        [numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    outputs, _ = values(model, {"x": np.ones((1, 1, 2, 2), np.float16)}, tmp_path)
    assert outputs["y"].dtype == np.float64 and (outputs["y"] == 0.5).all()


def test_impossible(tmp_path):
    branch = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["z"])], "b", [],
                               [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)])
    model = convolution()
    model.graph.node[0].CopyFrom(helper.make_node("If", ["c0"], ["c"], then_branch=branch, else_branch=branch))
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "c0"))
    with pytest.raises(ValueError, match="If has subgraphs"):
        values(model, {"x": np.ones((1, 1, 5, 5), np.float32)}, tmp_path)
