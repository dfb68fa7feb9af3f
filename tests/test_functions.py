"""Attaching the functions that a fused model carries."""

from __future__ import annotations

import dataclasses

import onnx
import onnx_ir as ir
import pytest

from rewriter.functions import MARK, attach, is_ours
from rewriter.vocabulary import Operator

HEAD = '<ir_version: {ir}, opset_import: ["" : {opset}, "my" : 1]>\n'


def define(uses, opset):
    """Whose doc string tells what it was made for."""
    for node in uses:
        node.attributes.add(ir.AttrInt64("helper", len(uses)))
    function = onnx.parser.parse_function(
        f'<domain: "custom.ops", opset_import: ["" : {opset}]> Half (x) => (y) {{ y = Abs(x) }}')
    function.doc_string = f"{MARK}: {', '.join(node.outputs[0].name for node in uses)}"
    return function


HALF = Operator("Half", "Half(x) -> y", "", (), (), (), (), 11, define, lambda x: x)
WHOLE = dataclasses.replace(HALF, name="Whole")


def model_of(text, *, version=9, opset=18):
    return ir.from_proto(onnx.parser.parse_model(HEAD.format(ir=version, opset=opset) + text))


NESTED = """g (float[2] x, bool c) => (float[2] y) {
    a = custom.ops.Half(x)
    b = If(c) <then_branch = t () => (float[2] o) { o = custom.ops.Half(a) }, else_branch = e () => (float[2] u)
        { u = Neg(a) }>
    y = my.f(b)
}
<domain: "my", opset_import: ["" : 18]> f (p) => (q) { q = custom.ops.Half(p) }"""


def test_one_function_for_all_uses():
    model = model_of(NESTED)
    assert attach(model, {"Half": HALF, "Whole": WHOLE}) == ["Half"]
    mine, = (f for f in model.functions.values() if f.domain == "custom.ops")
    assert is_ours(mine) and mine.doc_string == f"{MARK}: a, o, q" and mine.opset_imports[""] == 18
    assert model.opset_imports["custom.ops"] == 1
    other, = (f for f in model.functions.values() if f.domain == "my")
    assert other.opset_imports == {"": 18, "custom.ops": 1}
    uses = [n for graph in (model.graph, other.graph) for n in graph.all_nodes() if n.op_type == "Half"]
    assert [n.attributes["helper"].as_int() for n in uses] == [3, 3, 3]
    onnx.checker.check_model(ir.to_proto(model))


def test_attaching_again_changes_nothing():
    model = model_of(NESTED)
    attach(model, {"Half": HALF})
    once = ir.to_proto(model).SerializeToString()
    attach(model, {"Half": HALF})
    assert ir.to_proto(model).SerializeToString() == once


def test_functions_of_ours_that_nobody_calls_go():
    model = model_of("g (float[2] x) => (float[2] y) { y = custom.ops.Half(x) }")
    attach(model, {"Half": HALF})
    model.graph[0].domain, model.graph[0].op_type = "", "Neg"
    assert attach(model, {"Half": HALF}) == [] and not model.functions


def test_functions_of_others_stay():
    model = model_of("""g (float[2] x) => (float[2] y) { y = custom.ops.Half(x) }
    <domain: "custom.ops", opset_import: ["" : 18]> Other (p) => (q) { q = Neg(p) }""")
    assert attach(model, {"Half": HALF}) == ["Half"]
    assert {f.name: is_ours(f) for f in model.functions.values()} == {"Other": False, "Half": True}


@pytest.mark.parametrize(("version", "opset", "expected"), [(4, 11, 8), (7, 13, 8), (8, 15, 8), (10, 21, 10)])
def test_ir_version_and_opset(version, opset, expected):
    model = model_of("g (float[2] x) => (float[2] y) { y = custom.ops.Half(x) }", version=version, opset=opset)
    attach(model, {"Half": HALF})
    function, = model.functions.values()
    assert model.ir_version == expected and function.opset_imports[""] == opset == model.opset_imports[""]


def test_no_uses_no_import():
    model = model_of("g (float[2] x) => (float[2] y) { y = Neg(x) }", version=7)
    before = ir.to_proto(model).SerializeToString()
    assert attach(model, {"Half": HALF}) == [] and ir.to_proto(model).SerializeToString() == before


def test_the_mark_makes_a_function_ours():
    model = model_of("""g (float[2] x) => (float[2] y) { y = Neg(x) }
    <domain: "custom.ops", opset_import: ["" : 18], doc_string: "theirs"> Other (p) => (q) { q = Neg(p) }""")
    function, = model.functions.values()
    assert not is_ours(function)
    function.doc_string = f"{MARK} made this"
    assert is_ours(function)
