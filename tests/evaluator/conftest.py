"""One operator at a time: what the evaluator makes of it, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

from rewriter.evaluator import EvaluationError, Evaluator
from rewriter.scopes import Facts, scopes

CONTRIB = "com.microsoft"


def one_node(op_type, arrays, *, outputs=1, opset=18, domain="", **attributes) -> onnx.ModelProto:
    """A model of one node whose operands are initializers; None is an operand left out."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    node = onnx.helper.make_node(op_type, names, [f"y{k}" for k in range(outputs)], domain=domain, **attributes)
    held = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in zip(names, arrays) if n]
    results = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = onnx.helper.make_graph([node], "g", [], results, held)
    imports = [onnx.helper.make_opsetid("", opset)] + [onnx.helper.make_opsetid(domain, 1)] * bool(domain)
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=9 if opset < 22 else 10)


def evaluate_model(model: onnx.ModelProto) -> list[np.ndarray]:
    """The outputs of a model whose values are all constant, by the evaluator."""
    graph_model = ir.from_proto(model)
    scope = next(scopes(Facts(graph_model)))
    return [Evaluator(scope, {}).value(value) for value in graph_model.graph.outputs]


def expected(model: onnx.ModelProto) -> list[np.ndarray]:
    """By ONNX Runtime, or by onnx.reference where it has no kernel for these dtypes."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except ort.capi.onnxruntime_pybind11_state.NotImplemented:
        return ReferenceEvaluator(model).run(None, {})
    return session.run(None, {})


def check(op_type, arrays, **options) -> list[np.ndarray]:
    """The evaluator's outputs, once they equal the expected ones: exactly, floats to a few roundings."""
    model = one_node(op_type, arrays, **options)
    found, wanted = evaluate_model(model), expected(model)
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if ours.dtype.kind != "f":
            np.testing.assert_array_equal(ours, theirs)
            continue
        unit = float(np.finfo(ours.dtype).eps)
        scale = max((float(np.max(np.abs(a), initial=0, where=np.isfinite(a))) for a in arrays
                     if a is not None and np.asarray(a).dtype.kind == "f"), default=1.0)
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), 8 * unit, 8 * unit * scale)
    return found


@pytest.fixture(scope="session")
def agrees():
    """agrees(op_type, operands, outputs=, opset=, domain=, **attributes): hold one operator against ONNX Runtime."""
    return check


@pytest.fixture(scope="session")
def declines():
    """declines(op_type, operands, ...): the evaluator refuses to compute it; returns the reason."""

    def run(op_type, arrays, **options) -> str:
        with pytest.raises(EvaluationError) as caught:
            evaluate_model(one_node(op_type, arrays, **options))
        return str(caught.value)

    return run


@pytest.fixture(scope="session")
def evaluated():
    """evaluated(op_type, operands, ...): the evaluator's outputs, not compared with anything."""
    return lambda op_type, arrays, **options: evaluate_model(one_node(op_type, arrays, **options))
