"""Fused models with the library registered: all load and give what they give on their functions."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from kernel_models import OUTPUT, kernel_session
from onnx import TensorProto, helper
from test_corpus import CASES, STORED, outputs

import rewriter


def run_on_kernels(model: onnx.ModelProto, feeds: dict, *, optimize: bool = True) -> dict[str, np.ndarray]:
    options = rewriter.session_options()
    options.log_severity_level = 4
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, feeds)))


@pytest.mark.parametrize(("folder", "case"), CASES)
def test_case(folder, case, run):
    fused, report = rewriter.fuse(onnx.load(folder / f"{case['name']}.onnx"))
    if not report.fused or not case.get("ort", True):
        return
    arrays = dict(np.load(folder / f"{case['name']}.npz"))
    optimize = case.get("ort_default_ok", True)
    stock, kernels = (outputs(by, fused, arrays, optimize) for by in (run, run_on_kernels))
    for name, want in ((name, arrays["out_" + name]) for name in kernels if "out_" + name in arrays):
        got, own = kernels[name], stock[name]
        assert got.dtype == own.dtype and got.shape == own.shape
        if want.dtype.kind != "f":
            np.testing.assert_array_equal(got, want)
            continue
        got, own, want = (a.astype(np.float64) for a in (got, own, want))
        assert np.array_equal(np.isnan(got), np.isnan(want))
        error, functions = (float(np.nanmax(np.abs(a - want), initial=0.0)) for a in (got, own))
        scale = float(np.nanmax(np.abs(want), initial=0.0))
        assert error <= max(2 * functions, case["atol"] + case["rtol"] * scale), f"{name}: {error:.3g}, {functions:.3g}"


@pytest.mark.parametrize("path", STORED, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_files_fused_by_earlier_releases(path):
    arrays = dict(np.load(path.with_suffix(".npz")))
    feeds = {name.removeprefix("in_"): array for name, array in arrays.items() if name.startswith("in_")}
    for name, got in run_on_kernels(onnx.load(path), feeds).items():
        np.testing.assert_allclose(got, arrays["out_" + name], rtol=0, atol=2e-3 if got.dtype == np.float16 else 1e-5)


X = np.arange(12, dtype=np.float32).reshape(3, 4)
OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("custom.ops", 1), helper.make_opsetid("mine", 1)]


def turn(source, result):
    return helper.make_node("Rot90", [source], [result], domain="custom.ops", k=1, axes=[0, 1])


def branch(node, name):
    return helper.make_graph([node], name, [], [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)])


def choice(source, condition, result):
    return helper.make_node("If", [condition], [result], then_branch=branch(turn(source, "turned"), "then"),
                            else_branch=branch(helper.make_node("Abs", [source], ["same"]), "else"))


def function(domain, name, inputs, nodes):
    return helper.make_function(domain, name, inputs, ["result"], nodes, OPSETS)


def tells(nodes, functions=(), **feeds):
    """The output on the kernels; the function that would stand in for a kernel gives something else."""
    stand_in = helper.make_function("custom.ops", "Rot90", ["x"], ["y"], [helper.make_node("Neg", ["x"], ["y"])],
                                    OPSETS[:1], ["k", "axes"])
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
              for name, a in feeds.items()]
    outputs = [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, None)]
    model = helper.make_model(helper.make_graph(nodes, "graph", inputs, outputs), opset_imports=OPSETS, ir_version=8,
                              functions=[stand_in, *functions])
    return kernel_session(model.SerializeToString()).run(None, feeds)[0]


def test_kernels_win_over_functions_wherever_a_node_is():
    true = np.array(True)
    inner = function("mine", "Inner", ["v"], [helper.make_node("Abs", ["v"], ["w"]), turn("w", "result")])
    outer = function("mine", "Outer", ["v"], [helper.make_node("Inner", ["v"], ["result"], domain="mine")])
    chooser = function("mine", "Chooser", ["v", "c"], [choice("v", "c", "result")])
    want = np.rot90(X)
    np.testing.assert_array_equal(tells([turn("x", "y")], x=X), want)
    np.testing.assert_array_equal(tells([choice("x", "c", "y")], x=X, c=true), want)
    np.testing.assert_array_equal(
        tells([helper.make_node("Outer", ["x"], ["y"], domain="mine")], [inner, outer], x=X), want)
    np.testing.assert_array_equal(
        tells([helper.make_node("Chooser", ["x", "c"], ["y"], domain="mine")], [chooser], x=X, c=true), want)


def test_other_functions_of_the_domain_still_run():
    other = function("custom.ops", "Other", ["x"], [helper.make_node("Neg", ["x"], ["result"])])
    call = helper.make_node("Other", ["x"], ["y"], domain="custom.ops")
    np.testing.assert_array_equal(tells([call], [other], x=X), -X)
