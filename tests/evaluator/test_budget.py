"""What a run may spend: it ends the search, never the run, and never turns into a fact about a value."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser
from small_models import stn

import rewriter
from rewriter.evaluator import EvaluationError, Evaluator, budget
from rewriter.evaluator.budget import LIGHT, Budget, ExhaustedError, owner
from rewriter.graphs import fit_to_expand
from rewriter.scopes import Facts, scopes


def test_what_is_spent_is_gone(monkeypatch):
    monkeypatch.setattr(budget, "MOST_WORK", 10)
    left = Budget(nodes=1000)
    left.spend(10)
    for _ in range(2):
        with pytest.raises(ExhaustedError):
            left.spend(1)
    with left.building():
        left.spend(1 << 60)
    assert not issubclass(ExhaustedError, EvaluationError)


def test_without_a_budget_nothing_is_fused_and_the_reason_is_told(monkeypatch):
    monkeypatch.setattr(budget, "MOST_WORK", 0)
    same, report = rewriter.fuse(stn())
    assert same == stn() and not report.fused
    assert {miss.reason for miss in report.missed} == {"finding out what the model computes takes too long"}


def test_what_was_proven_before_stays(monkeypatch):
    """Of two samplers only the first that is looked at is paid for."""
    model = stn()
    for node in list(model.graph.node):
        twin = model.graph.node.add()
        twin.CopyFrom(node)
        twin.name += "_twin"
        twin.input[:] = [f"{n}_twin" if n in ("theta_t", "flat", "grid") else n for n in twin.input]
        twin.output[:] = [f"{n}_twin" for n in twin.output]
    spent: list[int] = []
    spend = Budget.spend
    monkeypatch.setattr(Budget, "spend", lambda self, work: (spent.append(work), spend(self, work))[1])
    rewriter.fuse(stn())
    monkeypatch.setattr(Budget, "spend", spend)
    monkeypatch.setattr(budget, "MOST_WORK", sum(spent))
    fused, report = rewriter.fuse(model)
    assert report.count("AffineGridSample") == 1 and report.missed
    monkeypatch.undo()
    assert rewriter.fuse(fused)[1].count("AffineGridSample") == 1


def scope_of(text: str):
    model = ir.from_proto(parser.parse_model(text))
    return next(scopes(Facts(model))), model.graph.outputs[0]


WIDE = """<ir_version: 8, opset_import: ["" : 18]> g () => (float y) {{
    shape = Constant <value = int64[1] {{{elements}}}> ()
    {sums}
}}"""


def test_one_evaluator_holds_large_arrays():
    scope, value = scope_of(WIDE.format(elements=LIGHT, sums="y = ConstantOfShape (shape)"))
    first, second = Evaluator(scope, {}), Evaluator(scope, {})
    assert first.value(value) is first.value(value)
    kept = first.value(value)
    second.value(value)
    assert first.value(value) is not kept


def test_one_evaluation_holds_no_more_than_it_may(monkeypatch):
    names = [f"v{k}" for k in range(9)]
    sums = "\n".join(f"{name} = ConstantOfShape (shape)" for name in names)
    scope, value = scope_of(WIDE.format(elements=1 << 16, sums=f"{sums}\ny = Sum ({', '.join(names)})"))
    assert Evaluator(scope, {}).value(value).shape == (1 << 16,)
    monkeypatch.setattr("rewriter.evaluator.HELD", 8 << 18)
    with pytest.raises(EvaluationError, match="takes more than"):
        Evaluator(scope, {}).value(value)


def test_owner():
    whole = np.zeros((4, 4))
    assert owner(whole[1:].T.reshape(-1)[:2]) is not whole  # a copy
    assert owner(np.broadcast_to(whole[0], (100, 4))) is whole


CALLS = """<ir_version: 8, opset_import: ["" : 18, "own" : 1]> g (float[2] x) => (float[2] y) {{ y = own.f0 (x) }}
{functions}"""
FUNCTION = '<opset_import: ["" : 18, "own" : 1], domain: "own"> f{k} (a) => (b) {{ {body} }}\n'


@pytest.mark.parametrize(("last", "most", "deepest", "fits"), [
    ("b = Relu (a)", 15 + 1 + 7, 4, True), ("b = Relu (a)", 22, 4, False), ("b = Relu (a)", 1000, 3, False),
    ("b = own.f0 (a)", 1000, 1000, False)])
def test_calls_written_out(last, most, deepest, fits):
    """f0 calls f1 twice, f1 calls f2 twice, f2 calls f3 twice: 1 + 2 + 4 + 8 calls, and 8 Relus."""
    bodies = [f"m = own.f{k + 1} (a) b = own.f{k + 1} (m)" for k in range(3)]
    text = CALLS.format(functions="".join(FUNCTION.format(k=k, body=b) for k, b in enumerate([*bodies, last])))
    model = ir.from_proto(parser.parse_model(text))
    assert fit_to_expand(model, most, deepest) == fits
