"""Scopes: which there are, in which order, and what they answer."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from rewriter.functions import MARK
from rewriter.scopes import Facts, scopes

HEAD = '<ir_version: 9, opset_import: ["" : 18, "my" : 1, "custom.ops" : 1]>\n'


def parsed(text):
    model = ir.from_proto(onnx.parser.parse_model(HEAD + text))
    for function in model.functions.values():
        function.doc_string = MARK if function.domain == "custom.ops" and function.name == "F" else None
    every = list(scopes(Facts(model)))
    return every, {v.name: v for s in every for v in (*s.graph.inputs, *(o for n in s.graph for o in n.outputs))}


NESTED = """g (float[N, 3] x, bool c, int64 n) => (float[a, b] y) <float two = {2}> {
    k = Mul(x, two)
    y = If(c) <
        then_branch = t () => (float[p, q] o) {
            o = Loop(n, c, k) <body = l (int64 i, bool ci, float[r, s] v) => (bool co, float[r, s] vo)
                { co = Identity(ci) vo = Add(v, k) }> },
        else_branch = e () => (float[u, w] m) { m = Neg(x) }>
    z = my.f(x)
}
<domain: "my", opset_import: ["" : 17]> f (p) => (q) { q = Neg(p) }
<domain: "custom.ops", opset_import: ["" : 18]> F (p) => (q) { q = Abs(p) }"""


def test_every_body_is_a_scope_but_ours():
    every, _ = parsed(NESTED)
    assert [(s.path, s.opset) for s in every] == [
        ("graph", 18), ("graph/If.then_branch", 18), ("graph/If.then_branch/Loop.body", 18),
        ("graph/If.else_branch", 18), ("function my::f", 17)]


def test_values_are_visible_inwards():
    (graph, then, loop, other, function), values = parsed(NESTED)
    assert all(scope.visible(values["k"]) for scope in (graph, then, loop, other))
    assert [s.path for s in (graph, then, loop, other, function) if s.visible(values["v"])] == [loop.path]
    assert [s.path for s in (graph, then, loop, other, function) if s.visible(values["o"])] == [then.path, loop.path]
    assert not function.visible(values["k"]) and not graph.visible(values["q"])


def test_dtypes_where_inference_gives_up():
    (graph, *_), values = parsed("""g (float16[2, 3] x, bool c) => (float[a] y) {
        odd = my.Thing(x)
        cast = Cast<to = 11>(odd)
        half = CastLike(odd, x)
        sum = Add(cast, odd)
        turned = Transpose(sum)
        chosen = Where(c, half, odd)
        branch = If(c) <then_branch = t () => (float[p] o) { o = Neg(cast) }, else_branch = e () => (float[q] u)
            { u = Neg(cast) }>
        unknown = Neg(odd)
        y = Identity(x)
    }""")
    assert {name: graph.dtype(values[name]) for name in ("cast", "half", "sum", "turned", "chosen", "branch", "y")} == {
        "cast": ir.DataType.DOUBLE, "half": ir.DataType.FLOAT16, "sum": ir.DataType.DOUBLE,
        "turned": ir.DataType.DOUBLE, "chosen": ir.DataType.FLOAT16, "branch": ir.DataType.DOUBLE,
        "y": ir.DataType.FLOAT16}
    assert graph.dtype(values["odd"]) is None and graph.dtype(values["unknown"]) is None


def test_the_dtype_of_a_cast_that_callers_choose_is_unknown():
    every, values = parsed("""g (float[2] x) => (float[a] y) { y = my.f<to = 10>(x) }
    <domain: "my", opset_import: ["" : 18]> f <to> (p) => (q) { r = my.g(p) q = Cast<to: int = @to>(r) s = Neg(q) }""")
    assert every[-1].dtype(values["q"]) is None and every[-1].dtype(values["s"]) is None


def test_an_opset_import_under_its_full_name():
    proto = onnx.parser.parse_model(HEAD + "g (float[2] x) => (float[a] y) { y = Neg(x) }")
    proto.opset_import[0].domain = "ai.onnx"
    assert next(scopes(Facts(ir.from_proto(proto)))).opset == 18


def test_constants():
    (graph, *_), values = parsed("""g (float[N, 3] x, float[2] free = {1, 2}) => (float[a] y)
    <float[2] k = {1, 2}, int64[1] zero = {0}> {
        shape = Shape(x)
        n = Gather(shape, zero)
        cols = Shape<start = 1>(x)
        twice = Add(k, k)
        open = Add(k, free)
        bad = Reshape(k, cols)
        data = Mul(x, x)
        y = Identity(x)
    }""")
    assert graph.constant(values["twice"]).tolist() == [2, 4]
    assert all(graph.constant(values[name]) is None for name in ("shape", "n", "open", "bad", "data", "x", "free"))
    assert graph.constant(None) is None
    assert graph.structural(values["n"]) and not graph.structural(values["data"])
    assert graph.static(values["twice"]) and graph.static(values["shape"]) and not graph.static(values["x"])
    assert graph.anchored(values["x"])


@pytest.mark.parametrize(("line", "expected"), [
    ("y = Transpose(x)", (3, "N")), ("y = Concat<axis = 0>(x, x)", ("y.0", 3)),
    ("y = my.Thing(x)", None), ("s = Shape(x) y = Expand(one, s)", ("y.0", 3))])
def test_measured_and_declared_shapes(line, expected):
    (graph, *_), values = parsed(f"g (float[N, 3] x) => (float[a] y) <float[1, 1] one = {{1}}> {{ {line} }}")
    assert graph.measured_shape(values["y"]) == expected
    declared = graph.declared_shape(values["y"])
    if expected is None:
        assert declared is None
    else:  # a symbol that is not the inputs' means nothing to others
        assert [getattr(d, "value", d) for d in declared] == [None if d == "y.0" else d for d in expected]


def test_shapes_behind_branches_are_measured():
    (graph, *_), values = parsed("""g (float[N, 3] x) => (float[a] y) <bool yes = {1}> {
        b = If(yes) <then_branch = t () => (float[p, q] o) { o = Transpose(x) },
                     else_branch = e () => (float[u, w] m) { v = my.Thing(x) m = Neg(v) }>
        y = Neg(b)
    }""")
    assert graph.measured_shape(values["y"]) == (3, "y.1")


def test_trials_of_a_scope():
    (graph, *_), values = parsed("g (float[N, 3, W] x) => (float[a] y) { s = Shape(x) y = Neg(x) }")
    rows = [trial.value(values["s"]) for trial in graph.trials([values["s"]])]
    assert all(row[1] == 3 for row in rows) and len({int(row[2]) for row in rows}) >= 4
    assert np.array_equal(graph.trials([values["s"]])[0].shape(values["y"]), rows[0])
