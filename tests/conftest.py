"""What the tests share: exporting torch modules, running models, and the one comparison of fused with unfused."""

from __future__ import annotations

import collections
import io
import warnings

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import rewriter

ort.set_default_logger_severity(4)
DOMAIN = "custom.ops"


def open_session(model: onnx.ModelProto, *, optimize: bool = True):
    """A function from inputs to outputs by name: stock ONNX Runtime on two threads."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, feeds)))


def run_model(model: onnx.ModelProto, feeds: dict, *, optimize: bool = True) -> dict[str, np.ndarray]:
    """Outputs by name."""
    return open_session(model, optimize=optimize)(feeds)


def export_module(module, args, *, opset=18, dynamo=True, dynamic=None, **options) -> onnx.ModelProto:
    """A torch module as a ModelProto. `dynamic` is dynamic_shapes (dynamo) or dynamic_axes (TorchScript)."""
    torch = pytest.importorskip("torch")
    module = module.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            program = torch.onnx.export(module, args, dynamo=True, opset_version=opset, dynamic_shapes=dynamic,
                                        verbose=False, **options)
            return program.model_proto
        buffer = io.BytesIO()
        names = [f"in{i}" for i in range(len(args))]
        torch.onnx.export(module, args, buffer, dynamo=False, opset_version=opset, dynamic_axes=dynamic,
                          input_names=names, output_names=["out"], **options)
    return onnx.load_from_string(buffer.getvalue())


def count_custom(model: onnx.ModelProto) -> dict[str, int]:
    """How often each operator of custom.ops occurs, subgraphs and the model's own functions included."""
    counter: collections.Counter = collections.Counter()

    def walk(nodes):
        for node in nodes:
            if node.domain == DOMAIN:
                counter[node.op_type] += 1
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    walk(attribute.g.node)

    walk(model.graph.node)
    for function in model.functions:
        if function.domain != DOMAIN:
            walk(function.node)
    return dict(counter)


def assert_fused(model, feeds, expected, *, reference=None, atol=1e-5, optimize=True):
    """Fuse a ModelProto and hold the outcome against it.

    What is fused is `expected` (operator -> count); the values equal the reference's (a list of arrays, default: the
    unfused model's) to `atol`, or to twice the unfused model's own error; fusing again changes nothing; the result
    passes the full checker. Returns (fused, report).
    """
    fused, report = rewriter.fuse(model)
    assert count_custom(fused) == expected, [m.reason for m in report.missed]
    onnx.checker.check_model(fused, full_check=True)
    again, _ = rewriter.fuse(fused)
    assert again.SerializeToString(deterministic=True) == fused.SerializeToString(deterministic=True)
    before, after = run_model(model, feeds, optimize=optimize), run_model(fused, feeds, optimize=optimize)
    assert list(before) == list(after)
    for index, name in enumerate(before):
        want = np.asarray(before[name] if reference is None else reference[index])
        assert after[name].dtype == before[name].dtype and after[name].shape == want.shape
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(after[name], want)
            continue
        error = np.max(np.abs(after[name].astype(np.float64) - want), initial=0.0)
        own = np.max(np.abs(before[name].astype(np.float64) - want), initial=0.0)
        assert error <= max(atol, 2 * own), f"{name}: off by {error:.3g}, unfused {own:.3g}"
    return fused, report


@pytest.fixture
def export():
    return export_module


@pytest.fixture
def run():
    return run_model


@pytest.fixture
def session():
    return open_session


@pytest.fixture
def custom():
    return count_custom


@pytest.fixture
def fuses():
    return assert_fused


@pytest.fixture
def tally(record_property):
    """A property test counts here what became of its examples; the counts are printed after the run."""
    counts: collections.Counter = collections.Counter()
    yield counts
    record_property("tally", {key: counts[key] for key in sorted(counts)})


def pytest_terminal_summary(terminalreporter):
    reports = [r for reports in terminalreporter.stats.values() for r in reports if hasattr(r, "user_properties")]
    found = {r.nodeid: counts for r in reports for name, counts in r.user_properties if name == "tally"}
    if found:
        terminalreporter.section("what became of the examples of the property tests")
    for test, counts in sorted(found.items()):
        terminalreporter.write_line(f"{test}: " + ", ".join(f"{key} {count:,}" for key, count in counts.items()))
