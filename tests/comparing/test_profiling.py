"""Profiles: made-up events with known sums, and a real one."""

from __future__ import annotations

import onnx
import pytest
from small_models import feeds, stn

import rewriter
from rewriter.comparing.fragments import changes
from rewriter.comparing.profiling import Profiler, expanded, named, read


def event(name, operator, microseconds):
    return {"cat": "Node", "name": f"{name}_kernel_time", "dur": microseconds, "args": {"op_name": operator}}


def run(*events):
    return [*events, {"cat": "Session", "name": "model_run"}]


def test_known_sums():
    made = {"relu": 3}
    trace = run(event("wf0_", "Conv", 999), event("wf1_", "Mul", 999))  # the first run is left out
    for off in (-1, 0, 1):
        trace += run(event("wf0_", "Conv", 100 + off), event("wf1_", "Mul", 30), event("wf1_", "Mul", 10),
                     event("relu_nchwc", "Conv", 50), event("ReorderOutput_token_5", "ReorderOutput", 5),
                     event("wfbody_7", "MatMul", 3))
    profile = read(trace, made, {1, 3})
    assert profile.total == pytest.approx(198e-6)
    assert profile.concerned == pytest.approx(93e-6)  # Mul, relu, and the body of a function
    assert profile.unknown == pytest.approx(5e-6)
    assert profile.share == pytest.approx(93 / 198)
    assert [(o.name, o.count) for o in profile.operators] == [("Conv", 2), ("Mul", 1), ("ReorderOutput", 1),
                                                              ("MatMul", 1)]


def test_nothing_happened():
    assert read([], {}, set()).share == 0


def test_names():
    model = stn()
    made = named(model)
    assert [node.name for node in model.graph.node] == ["wf0_", "wf1_", "wf2_", "wf3_"]
    assert made == {"theta_t": 0, "flat": 1, "grid": 2, "y": 3}
    fused, _ = rewriter.fuse(stn())
    named(fused)
    flat = expanded(fused)
    assert not flat.functions
    assert all(node.name.startswith("wf") for node in flat.graph.node)
    assert len({node.name for node in flat.graph.node}) == len(flat.graph.node)


def test_a_real_profile(tmp_path):
    model = stn(extra_node=True)
    fused, _ = rewriter.fuse(model)
    gone, come = changes(model, fused)
    for name, proto, places in (("a", model, gone), ("b", fused, come)):
        onnx.save(proto, tmp_path / "m.onnx")
        profile = Profiler().profile(feeds(), [place.position for place in places], str(tmp_path),
                                     {"path": str(tmp_path / "m.onnx"), "folder": "", "threads": 1})
        assert 0 < profile.concerned <= profile.total, name
        assert "GridSample" in [operator.name for operator in profile.operators]
        assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
