"""Sizes of a sweep, and a real one over a dynamic model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import rewriter
from rewriter.comparing import comparison
from rewriter.comparing.sweep import parse
from rewriter.errors import UsageError


@pytest.mark.parametrize(("text", "dims", "sizes"), [
    ("H,W=64..1080", ("H", "W"), (64, 128, 256, 512, 1080)),
    ("batch=1..32", ("batch",), (1, 2, 4, 8, 16, 32)),
    ("x:2=3..4", ("x:2",), (3, 4)),
    ("N=5..5", ("N",), (5,)),
    ("N=1,2,7,2", ("N",), (1, 2, 7)),
])
def test_parse(text, dims, sizes):
    assert parse(text) == (dims, sizes)


@pytest.mark.parametrize("text", ["", "H", "H=", "=3", "H=0..4", "H=4..", "H=a", "H=8..4", "H=-1"])
def test_parse_refuses(text):
    with pytest.raises(UsageError, match="--sweep"):
        parse(text)


def dynamic() -> onnx.ModelProto:
    shape = ["N", 3, "H", "W"]
    graph = helper.make_graph([helper.make_node("Sin", ["x"], ["s"]), helper.make_node("Cos", ["s"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_a_real_sweep(monkeypatch):
    original = comparison.plan
    monkeypatch.setattr(comparison, "plan", lambda *args, **keywords: [
        item for item in original(*args, **keywords) if item.variant.key in ("onnxruntime-unfused",
                                                                             "onnxruntime-fused")])
    seen = []
    result = rewriter.compare(dynamic(), dynamic(), sweep="H,W=4,8", seconds=0, threads=1,
                              progress=lambda share, left, doing: seen.append((share, left, doing)))
    assert result.sweep.dims == ("H", "W")
    assert [point.size for point in result.sweep.points] == [4, 8]
    for point in result.sweep.points:
        assert point.absolute == 0 and point.good and not point.failed
        assert point.faster.keys() == {"onnxruntime-fused"}
        assert point.times.keys() == {"onnxruntime-unfused", "onnxruntime-fused"}
    assert result.inputs[0].shape == (1, 3, 8, 8) and result.assumed == {"N": 1}
    assert all(0 <= share <= 1 and left >= 0 for share, left, _ in seen)
    assert list(dict.fromkeys(doing for *_, doing in seen)) == [
        "starting the runtimes", "a float64 run", "timing", "making sessions", "profiling", "sweeping"]
    assert seen[-1][:2] == (1.0, 0.0)
    assert np.isfinite([r.value for point in result.sweep.points for r in point.faster.values()]).all()


def test_what_is_fixed_is_not_swept():
    with pytest.raises(UsageError, match="--sweep: no input has an open dim 'D'; there are N, H, W"):
        rewriter.compare(dynamic(), sweep="D=1..2")
