"""A few models of the soak (`tests/soak/run.py` makes thousands), and that its judge sees a fault."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from soak import tools
from soak.compose import compose
from soak.mutations import by_onnxruntime, graphs
from soak.oracle import Verdict, judge, run, session
from soak.parts import OWN, folders, load
from soak.run import model_of, try_seed

import rewriter

PARTS = load((OWN,))
BATCH = 8
# Whatever the soak over the larger folder of cases once called wrong or crashed: onnxsim died of two, and one had dims
# of one name and two sizes.
FOUND = (1327, 4419, 5999)


def test_a_seed_is_a_model():
    first, again = (model_of(5, PARTS)[0] for _ in range(2))
    assert first.model == again.model
    assert first.story == again.story
    assert all(np.array_equal(array, again.feeds[name]) for name, array in first.feeds.items())


@pytest.mark.parametrize("first", range(0, 96, BATCH))
def test_fused_is_unfused(first):
    results = [try_seed(seed, PARTS, kernels=False) for seed in range(first, first + BATCH)]
    assert [result for result in results if result["verdict"] not in ("EQUAL", "NOTHING")] == []
    assert any(result["counts"] for result in results)


@pytest.mark.skipif(len(folders()) < 2, reason="WARPFUSE_CASES names no folder, which these seeds draw from")
@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found(seed):
    assert try_seed(seed, load(tuple(folders())), kernels=False)["verdict"] == "EQUAL"


def test_each_part_has_its_own_dims():
    part = next(part for part in PARTS if part.name == "turn_3_dynamic")
    seen = set()
    for seed in range(10):
        for value in compose([part, part], random.Random(seed)).model.graph.input:
            owner = value.name.partition(".")[0]
            seen.update((owner, dim.dim_param) for dim in value.type.tensor_type.shape.dim if dim.dim_param)
    assert seen == {(owner, f"{owner}.{symbol}") for owner in ("p0", "p1") for symbol in "NHW"}


def test_a_tool_that_dies_takes_nothing_along(monkeypatch):
    made, _ = model_of(5, PARTS)
    with monkeypatch.context() as patch:
        patch.setattr(tools, "PATIENCE", 0.0)  # it is killed
        with pytest.raises(tools.WorkerError) as caught:
            by_onnxruntime(made, random.Random(0))
    assert caught.value.kind == ""
    before = made.model
    by_onnxruntime(made, random.Random(0))
    assert made.model is not before
    assert [value.name for value in made.model.graph.output] == [value.name for value in before.graph.output]


def _other_corners(model: onnx.ModelProto) -> None:
    """Grids that begin in another place."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name in ("align_corners", "grid_align_corners"):
                attribute.i = 1 - attribute.i


def _reversed(model: onnx.ModelProto) -> None:
    """Images whose last axis runs the other way."""
    for name, number in (("fault.last", -1), ("fault.end", np.iinfo(np.int64).min)):
        model.graph.initializer.append(numpy_helper.from_array(np.array([number]), name))
    outputs = {value.name for value in model.graph.output}
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        for index, name in enumerate(node.output):
            if name in outputs:
                node.output[index] = f"{name}.before"
                nodes.append(helper.make_node(
                    "Slice", [f"{name}.before", "fault.last", "fault.end", "fault.last", "fault.last"], [name]))
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


@pytest.mark.parametrize("fault", [_other_corners, _reversed], ids=lambda fault: fault.__name__.strip("_"))
def test_the_judge_sees_a_fault(fault, monkeypatch):
    real, seen = rewriter.fuse, []
    for seed in range(60):
        made, rng = model_of(seed, PARTS)
        fused, report = real(made.model)
        broken = onnx.ModelProto()
        broken.CopyFrom(fused)
        fault(broken)
        if broken == fused or not report.changed or not _differ(made, fused, broken):
            continue
        with monkeypatch.context() as patch:
            patch.setattr(rewriter, "fuse", lambda model, made=(broken, report): made)
            seen.append(judge(made, rng, kernels=False)[0])
        if len(seen) == 4:
            break
    assert seen == [Verdict.WRONG] * 4


def test_turns_are_held_to_the_last_bit(monkeypatch):
    part = next(part for part in PARTS if part.name == "turn_1")
    made = compose([part], random.Random(0))
    assert judge(made, random.Random(0), kernels=False) == (Verdict.EQUAL, "", {"Rot90": 1})
    fused, report = rewriter.fuse(made.model)
    graph = next(graph for graph in graphs(fused) if any(node.op_type == "Rot90" for node in graph.node))
    turn = next(node for node in graph.node if node.op_type == "Rot90")
    name = turn.output[0]
    turn.output[0] = f"{name}.exact"
    graph.initializer.append(numpy_helper.from_array(np.nextafter(np.float32(1), np.float32(2)), "fault.factor"))
    graph.node.append(helper.make_node("Mul", [f"{name}.exact", "fault.factor"], [name]))
    monkeypatch.setattr(rewriter, "fuse", lambda model: (fused, report))
    assert judge(made, random.Random(0), kernels=False)[0] == Verdict.WRONG


def _differ(made, fused: onnx.ModelProto, broken: onnx.ModelProto) -> bool:
    """Whether the fault is one that no rounding explains, in float16 neither."""
    one, other = (list(run(session(model), made.feeds).values()) for model in (fused, broken))
    return any(a.dtype.kind == "f" and np.abs(a.astype(float) - b).max(initial=0) > 0.3 * np.abs(a).max(initial=1)
               for a, b in zip(one, other))
