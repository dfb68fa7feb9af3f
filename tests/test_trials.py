"""Which sizes are tried: all symbols found, both sides of every threshold, no symbol that never varies."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper
from size_texts import POSITIONS, parsed, size_arithmetic

from rewriter.evaluator import EvaluationError, Kind, kind
from rewriter.scopes import Facts, scopes
from rewriter.slices import linear_slice
from rewriter.trials import beyond_trial, symbols, trials


def tried(scope, value):
    """The values that a value takes with sizes that the graph must run with."""
    return [np.ravel(trial.value(value)).tolist() for trial in trials(scope, [value]) if not trial.optional]


def test_no_symbols_one_trial():
    scope, values = parsed("g (float[2, 3] x) => (float[a] y) { s = Shape(x) y = Neg(x) }")
    only, = trials(scope, [values["s"], values["y"]])
    assert only.value(values["s"]).tolist() == [2, 3]


def test_symbols_of_dynamic_inputs():
    scope, values = size_arithmetic("both = Mul(h, w)", inputs="float[N, 3, H, W] x, float[B, 2, 3] other")
    found, comparisons = symbols(scope, [values["both"]])
    assert found == {"N": True, "H": False, "W": False} and not comparisons
    assert symbols(scope, [values["other"]])[0] == {"B": True}
    assert symbols(scope, [values["both"], values["other"]])[0] == {"N": True, "H": False, "W": False, "B": True}


def test_sizes_differ_enough():
    scope, values = size_arithmetic("both = Concat<axis = 0>(h, w)")
    pairs = tried(scope, values["both"])
    assert len(pairs) >= 4 and all(min(pair) > 1 for pair in pairs)
    assert {np.sign(h - w) for h, w in pairs} == {-1, 0, 1}
    assert any(h > 20 * w for h, w in pairs) and any(w > 20 * h for h, w in pairs)
    every = trials(scope, [values["both"]])
    assert {trial.sizes["N"] for trial in every if not trial.optional} == {2, 3}
    assert {trial.sizes["N"] for trial in every if trial.optional} == {1, 5}


def test_every_symbol_varies_and_no_two_are_alike():
    dims = [f"d{k}" for k in range(30)]
    inputs = ", ".join(f"float[2, {', '.join(dims[k:k + 5])}] x{k}" for k in range(0, 30, 5))
    shapes = "\n".join(f"s{k} = Shape(x{k})" for k in range(0, 30, 5))
    scope, values = parsed(f"g ({inputs}) => (float[a] y) {{ {shapes} y = Neg(x0) }}")
    every = trials(scope, [values[f"s{k}"] for k in range(0, 30, 5)])
    columns = {dim: tuple(trial.sizes[dim] for trial in every) for dim in dims}
    assert all(len(set(column)) > 1 for column in columns.values())
    assert len(set(columns.values())) == len(dims)


def test_size_inputs():
    scope, values = parsed("""g (int64[2] size, int64[4] full, float[2] x) => (float[a] y)
        { both = Concat<axis = 0>(size, full) y = Neg(x) }""")
    found, _ = symbols(scope, [values["both"]])
    assert found == {f"size[{k}]": False for k in range(2)} | {f"full[{k}]": k == 0 for k in range(4)}
    assert all(len(row) == 6 and min(row) > 1 for row in tried(scope, values["both"]))
    flags = [trial.sizes for trial in trials(scope, [values["both"]]) if trial.optional]
    assert all({0, 1, -1, -2} <= {sizes[name] for sizes in flags} for name in found)


@pytest.mark.parametrize("which", ["h", "w"])
@pytest.mark.parametrize("edge", [20, 100, 1000, 2047])
@pytest.mark.parametrize("line", [
    "r = Min({0}, edge)", "r = Max({0}, edge)", "r = Min(edge, {0})", "t = Squeeze(edge)\n r = Clip({0}, , t)",
    "c = Less({0}, edge)\n r = Where(c, {0}, edge)", "c = GreaterOrEqual({0}, edge)\n r = Where(c, edge, {0})",
    "c = Equal({0}, edge)\n r = Where(c, zero, {0})", "r = Mod({0}, edge)", "r = Div({0}, edge)",
    "f = Cast<to = 1>({0})\n e = Cast<to = 1>(edge)\n r = Min(f, e)"])
def test_both_sides_of_a_threshold(line, edge, which):
    """Whatever a size is compared with, some trial lies below, one above and one at it."""
    scope, values = size_arithmetic(line.format(which), edge)
    sides = {int(np.sign(trial.value(values[which])[0] - edge)) for trial in trials(scope, [values["r"]])}
    assert sides == {-1, 0, 1}


@pytest.mark.parametrize(("line", "compared", "edge"), [
    ("t = Div(w, eight)\n r = Min(t, edge)", "t", 200),
    ("t = Mul(w, eight)\n r = Min(t, edge)", "t", 24),
    ("t = Mul(h, w)\n r = Min(t, edge)", "t", 5000),
    ("t = Sub(w, h)\n r = Max(t, edge)", "t", 300),
    ("t = Size(x)\n r = Min(t, edge)", "t", 20000)])
def test_both_sides_where_arithmetic_comes_before_the_comparison(line, compared, edge):
    scope, values = size_arithmetic(line, edge)
    sides = {int(np.sign(np.ravel(trial.value(values[compared]))[0] - edge)) for trial in trials(scope, [values["r"]])}
    assert {-1, 1} <= sides


def test_thresholds_of_a_batch():
    scope, values = size_arithmetic("r = Min(n, edge)", edge=5, inputs="float[N, 3, 8, 9] x")
    assert {row[0] for row in tried(scope, values["r"])} >= {2, 4, 5}


def test_comparisons_of_data_cost_no_trials():
    scope, values = size_arithmetic("six = Constant<value_float = 6.0>()\n r = Clip(x, , six)\n both = Mul(h, w)")
    assert len(trials(scope, [values["r"], values["both"]])) == len(trials(scope, [values["both"]]))


@pytest.mark.parametrize("detour", [
    "made = ConstantOfShape(shape)\n again = Shape(made)",
    "one = Constant<value_float = 1.0>()\n made = Expand(one, shape)\n again = Shape(made)",
    "made = Transpose(x)\n again = Shape(made)",
    "p = Concat<axis = 0>(zero, zero, zero, zero, zero, zero, zero, two)\n made = Pad(x, p)\n again = Shape(made)"])
def test_symbols_behind_another_shape(detour):
    scope, values = size_arithmetic(detour)
    assert {"H", "W"} <= symbols(scope, [values["again"]])[0].keys()
    assert len({tuple(row) for row in tried(scope, values["again"])}) >= 4


def test_what_no_trial_proves():
    scope, values = size_arithmetic("f = Cast<to = 1>(w)\n wave = Sin(f)\n square = Mul(f, f)\n k = Floor(f)")
    assert beyond_trial(scope, [values["square"], values["k"]]) is None
    assert beyond_trial(scope, [values["square"], values["wave"]]).op_type == "Sin"


@pytest.mark.parametrize(("line", "op_type"), [
    ("five = Constant<value_int = 5000>()\n r = Min(w, five)", "Min"),
    ("f = Cast<to = 1>(w)\n k = Constant<value_float = 5000.0>()\n q = Div(f, k)\n r = Ceil(q)", "Ceil"),
    ("b = Cast<to = 9>(w)\n r = Cast<to = 1>(b)", "Cast"),
    ("hundred = Constant<value_ints = [300]>()\n s = Squeeze(w)\n z = Constant<value_int = 0>()\n"
     "i = Constant<value_int = 1>()\n line = Range(z, s, i)\n r = Slice(line, zero, hundred)", "Slice")])
def test_arithmetic_that_turns_beyond_the_tried_sizes(line, op_type):
    scope, values = size_arithmetic(line)
    assert beyond_trial(scope, [values["r"]]).op_type == op_type


@pytest.mark.parametrize(("line", "turn"), [
    ("f = Cast<to = 1>(h)\n k = Constant<value_float = 512.0>()\n q = Div(f, k)\n r = Ceil(q)", 513),
    ("k = Constant<value_ints = [512]>()\n d = Sub(h, k)\n r = Max(d, zero)", 512),
    ("k = Constant<value_ints = [512]>()\n both = Concat<axis = 0>(h, k)\n r = ReduceMax(both)", 513)])
def test_sizes_at_which_arithmetic_turns_are_tried(line, turn):
    scope, values = size_arithmetic(line)
    sizes = {trial.sizes["H"] for trial in trials(scope, [values["r"]])}
    assert {turn - 1, turn, turn + 1} <= sizes


def test_sizes_that_are_compared_with_sizes():
    scope, values = size_arithmetic(
        "k = Constant<value_ints = [50]>()\n m = Mul(w, k)\n c = Greater(h, m)\n r = Where(c, h, w)")
    sizes = [trial.sizes for trial in trials(scope, [values["r"]])]
    assert any(s["H"] > 50 * s["W"] for s in sizes) and any(s["H"] == 50 * s["W"] for s in sizes)


def test_a_long_chain_is_classified():
    length = 50_000  # of two kinds
    nodes = [helper.make_node(("Neg", "Identity", "Add")[k % 3], [f"v{k}"] * (1 + (k % 3 == 2)), [f"v{k + 1}"])
             for k in range(length)]
    nodes += [helper.make_node("Shape", ["v0"], ["s0"])]
    nodes += [helper.make_node("Identity", [f"s{k}"], [f"s{k + 1}"]) for k in range(length)]
    x = helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["N", "W"])
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name=n) for n in (f"v{length}", f"s{length}")])
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    scope = next(scopes(Facts(model)))
    data, sizes = model.graph.outputs
    assert kind(data, scope) is Kind.DATA and kind(sizes, scope) is Kind.STRUCTURAL
    assert symbols(scope, [data, sizes])[0] == {"N": True, "W": False}
    assert {tuple(trial.value(sizes)) for trial in trials(scope, [sizes])[:2]} == {(2, 7), (3, 16)}
    assert not linear_slice(data, scope).whole  # too much of it
    assert scope.shape(data) == ("N", "W")
    with pytest.raises(EvaluationError):
        trials(scope, [sizes])[0].value(data)


@pytest.mark.parametrize(("line", "op_type"), [
    ("q = Div(w, eight)\n m = Mul(q, eight)\n s = Sub(w, m)\n e = Constant<value_ints = [5]>()\n"
     "c = Equal(s, e)\n r = Where(c, h, w)", "Equal"),  # a remainder: no power of two shows it
    ("a = Constant<value_ints = [70]>()\n b = Constant<value_ints = [100]>()\n c = Greater(h, w)\n"
     "d = Greater(w, a)\n e = And(c, d)\n r = Where(e, h, w)", "Greater"),  # two conditions, one on both sizes
    ("q = Div(w, eight)\n m = Mul(q, eight)\n s = Sub(m, h)\n c = Equal(s, last)\n r = Where(c, h, w)", "Equal"),
    ("d = Mul(h, two)\n m = Mul(w, eight)\n s = Sub(d, m)\n c = Equal(s, last)\n r = Where(c, h, w)", "Equal")])
def test_outcomes_that_trying_may_not_meet(line, op_type):
    scope, values = size_arithmetic(line)
    assert beyond_trial(scope, [values["r"]]).op_type == op_type


def test_conditions_that_are_joined_are_met_together():
    scope, values = size_arithmetic("a = Constant<value_ints = [100]>()\n b = Constant<value_ints = [50]>()\n"
                                    "c = Greater(h, a)\n d = Greater(w, b)\n e = And(c, d)\n r = Where(e, h, w)")
    assert beyond_trial(scope, [values["r"]]) is None
    met = {(t.sizes["H"] > 100, t.sizes["W"] > 50) for t in trials(scope, [values["r"]])}
    assert met == {(False, False), (False, True), (True, False), (True, True)}


def test_positions_beyond_a_constant_are_tried():
    """A size of 201 is the first with a pixel that the constant cuts off."""
    scope, values = size_arithmetic(POSITIONS + "k = Constant<value_int = 200>()\n r = Min(line, k)")
    assert {201, 202} <= {trial.sizes["W"] for trial in trials(scope, [values["r"]])}
