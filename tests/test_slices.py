"""Backward slices through what is linear, and the cuts through them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from rewriter.evaluator import Evaluator
from rewriter.scopes import Facts, scopes
from rewriter.slices import MOST_VALUES, linear_slice, unavoidable_leaf

HEAD = '<ir_version: 9, opset_import: ["" : 18, "other" : 1]>\n'


def parsed(text):
    model = ir.from_proto(onnx.parser.parse_model(HEAD + text))
    every = list(scopes(Facts(model)))
    return every[0], {v.name: v for s in every for v in (*s.graph.inputs, *(o for n in s.graph for o in n.outputs))}


def names(values):
    return {value.name for value in values}


GRID = """g (float[2, 3] theta, float[3] shift, float[N, 3] x) => (float[a] y)
<float[3, 4] base = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, float half = {0.5}> {
    wild = Exp(theta)
    scaled = Mul(wild, half)
    moved = Add(scaled, shift)
    product = MatMul(moved, base)
    shape = Shape(x)
    y = Identity(product)
}"""


def test_a_slice_stops_where_linearity_does():
    scope, values = parsed(GRID)
    cut = linear_slice(values["y"], scope)
    assert [v.name for v in cut.order] == ["y", "product", "moved", "scaled", "shift", "wild"]
    assert {v.name: reason for v, reason in cut.leaves.items()} == {
        "wild": "Exp is not linear in what it is given", "shift": "an input"}
    assert names(cut.feeds[values["moved"]]) == {"scaled", "shift"}
    assert names(cut.structural) == {"base", "half"}


def test_cuts():
    scope, values = parsed(GRID)
    cut = linear_slice(values["y"], scope)
    assert cut.is_cut({values["y"]}) and cut.is_cut({values["moved"]})
    assert cut.is_cut({values["wild"], values["shift"]}) and cut.is_cut({values["scaled"], values["shift"]})
    assert not cut.is_cut({values["wild"]}) and not cut.is_cut({values["shift"]}) and not cut.is_cut(set())
    assert [n.outputs[0].name for n in cut.between({values["moved"]})] == ["y", "product"]
    assert {n.outputs[0].name for n in cut.between({values["wild"], values["shift"]})} == {
        "y", "product", "moved", "scaled"}


def test_a_slice_is_affine_in_any_cut():
    scope, values = parsed(GRID)
    rng = np.random.default_rng(0)
    cut = (values["scaled"], values["shift"])
    assert linear_slice(values["y"], scope).is_cut(set(cut))

    def f(a, b):
        return Evaluator(scope, {}).run(values["y"], dict(zip(cut, (a, b))))

    (a, b), (c, d) = ((rng.standard_normal((2, 3)), rng.standard_normal(3)) for _ in range(2))
    np.testing.assert_allclose(f(a, b) + f(c, d) - f(0 * a, 0 * b), f(a + c, b + d), atol=1e-12)


def test_a_leaf_that_no_small_value_cuts_off():
    scope, values = parsed(GRID)
    assert unavoidable_leaf(values["y"], scope, lambda v: v is values["moved"]) is None
    assert unavoidable_leaf(values["y"], scope, lambda v: v is values["scaled"]) == (values["shift"], "an input")
    leaf, reason = unavoidable_leaf(values["y"], scope, lambda v: v is values["shift"])
    assert leaf is values["wild"] and "Exp" in reason
    # the target itself is no cut of its own
    assert unavoidable_leaf(values["y"], scope, lambda v: v is values["y"]) is not None


@pytest.mark.parametrize(("text", "leaf", "reason"), [
    ("y = Mul(x, z)", "y", "Mul multiplies x with z"), ("y = Div(one, x)", "y", "Div is not linear"),
    ("y = MatMul(x, x)", "y", "MatMul multiplies x with x"), ("y = other.Thing(x)", "y", "Thing is not linear"),
    ("i = Cast<to = 7>(x) y = Cast<to = 1>(i)", "y", "cast between integers and floats"),
    ("b = Cast<to = 9>(x) y = Where(b, x, z)", "y", "Where is not linear"),
    ("i = Cast<to = 7>(x) y = Gather(z, i)", "y", "Gather is not linear")])
def test_reasons(text, leaf, reason):
    scope, values = parsed(f"g (float[2, 2] x, float[2, 2] z) => (float[a] y) <float one = {{1}}> {{ {text} }}")
    found = linear_slice(values["y"], scope)
    assert reason in found.leaves[values[leaf]] and found.feeds[values[leaf]] == ()


def test_casts_between_floats_are_passed():
    scope, values = parsed("g (float[2] x) => (float[2] y) { h = Cast<to = 10>(x) l = CastLike(h, x) y = Neg(l) }")
    assert names(linear_slice(values["y"], scope).leaves) == {"x"}


BRANCH = """g (float[N, 2] x, bool c) => (float[a] y) <bool yes = {{1}}, int64 two = {{2}}, int64 eight = {{8}}> {{
    n = Shape<end = 1>(x)
    many = Greater(n, {threshold})
    y = If({condition}) <then_branch = t () => (float[p] a) {{ a = Neg(x) }},
                         else_branch = e () => (float[q] b) {{ b = Exp(x) }}>
}}"""


@pytest.mark.parametrize(("condition", "threshold", "leaves"), [
    ("yes", "two", {"x": "an input"}), ("c", "two", {"y": "the branch taken depends on data"}),
    ("many", "two", {"y": "the branch taken depends on sizes"}),
    ("many", "eight", {"y": "the branch taken depends on sizes"})])
def test_branches(condition, threshold, leaves):
    scope, values = parsed(BRANCH.format(condition=condition, threshold=threshold))
    found = linear_slice(values["y"], scope)
    assert {v.name: reason for v, reason in found.leaves.items()} == leaves
    assert (values["a"] in found.feeds) == (condition == "yes") and values["b"] not in found.feeds


def test_a_slice_of_too_much_is_given_up():
    chain = "\n".join(f"v{k + 1} = Neg(v{k})" for k in range(MOST_VALUES + 1))
    scope, values = parsed(f"g (float[2] v0) => (float[a] y) {{ {chain} y = Identity(v9) }}")
    short, long = linear_slice(values["y"], scope), linear_slice(values[f"v{MOST_VALUES + 1}"], scope)
    assert short.whole and len(short.feeds) == 11
    assert not long.whole and long.order == ()


def test_the_spine_ends_where_values_meet():
    scope, values = parsed(GRID)
    assert [v.name for v in linear_slice(values["y"], scope).spine()] == ["y", "product", "moved"]


def test_diamonds_are_walked_once():
    chain = "\n".join(f"v{k + 1} = Add(v{k}, v{k})" for k in range(200))  # 2**200 paths
    scope, values = parsed(f"g (float[2] v0) => (float[a] y) {{ {chain} y = Identity(v200) }}")
    found = linear_slice(values["y"], scope)
    assert len(found.feeds) == 202 and found.is_cut({values["v100"]}) and len(found.between({values["v100"]})) == 101
