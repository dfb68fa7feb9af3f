"""The pass, with a pattern made up here: Neg(Mul(x, 2)) becomes custom.ops::Scaled(x, factor=-2)."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxscript
import pytest

from rewriter import engine
from rewriter.errors import InternalError
from rewriter.functions import MARK
from rewriter.scopes import Scope
from rewriter.vocabulary import Match, Miss, Operator

HEAD = '<ir_version: {ir}, opset_import: ["" : {opset}{more}]>\n'


def define(uses, opset):
    op = onnxscript.values.Opset("", opset)

    @onnxscript.script(onnxscript.values.Opset("custom.ops", 1), default_opset=op)
    def Scaled(x, factor: float):  # noqa: N802 (the function bears the operator's name)
        return op.Mul(x, op.Constant(value_float=factor))

    proto = Scaled.to_function_proto()
    proto.doc_string = f"{MARK}: x times a factor, {len(uses)} times in this model"
    return proto


SCALED = Operator("Scaled", "Scaled(x) -> y", "x times a factor.", (("x", "float32"),), (("y", "as x"),),
                  (("factor", "float"),), (), 13, define, lambda x, factor: x * np.float32(factor))


class NegatedDouble:
    name, anchors, operators, needs = "negated_double", frozenset({"Neg"}), (SCALED,), ()

    def match(self, node: ir.Node, scope: Scope) -> Match | Miss | None:
        product = node.inputs[0].producer()
        if product is None or product.op_type != "Mul":
            return None
        factor = scope.constant(product.inputs[1])
        if factor is None or factor.size != 1:
            return Miss("the factor is not known", product.inputs[1].name)
        if factor.item() == 13:
            raise ZeroDivisionError("thirteen")
        if factor.item() != 2:
            return Miss(f"the factor is {factor.item():g}, not 2", product.inputs[1].name)
        x, root = product.inputs[0], node.outputs[0]

        def build(builder):
            return builder.custom("Scaled", [x], factor=-2.0, dtype=scope.dtype(x), shape=scope.declared_shape(root))

        return Match(root, build, {node, product}, "Scaled")


def fused(text, *, opset=18, version=9, more="", change=None):
    """(model before, model after, report); what is made is valid, and a second run finds nothing."""
    proto = onnx.parser.parse_model(HEAD.format(ir=version, opset=opset, more=more) + text)
    for node in proto.graph.node:
        node.name = node.name or f"n_{node.output[0]}"
    if change is not None:
        change(proto)
    model = ir.from_proto(proto)
    before = ir.to_proto(model)
    report = engine.run(model, [NegatedDouble()])
    after = ir.to_proto(model)
    onnx.checker.check_model(after, full_check=True)
    again = engine.run(model, [NegatedDouble()])
    assert not again.fused and ir.to_proto(model).SerializeToString() == after.SerializeToString()
    return before, after, report


def ops(graph):
    return [node.op_type for node in graph.node]


X = np.arange(6, dtype=np.float32).reshape(2, 3)
PLAIN = """g (float[N, 3] x) => (float[N, 3] y) <float two = {2}> {
    before = Abs(x)
    m = Mul(before, two)
    n = Neg(m)
    y = Relu(n)
}"""


def test_a_match_is_replaced(run):
    before, after, report = fused(PLAIN)
    assert ops(after.graph) == ["Abs", "Scaled", "Relu"]
    assert [a.f for a in after.graph.node[1].attribute] == [-2.0]
    assert after.graph.node[1].output == ["n"]  # the name of the replaced value survives
    assert not after.graph.initializer
    assert report.fused[0].__dict__ == {
        "pattern": "negated_double", "operator": "Scaled", "node": "n_n", "tensor": "n", "scope": "graph", "nodes": 2,
        "note": ""}
    assert (report.nodes_before, report.nodes_after, report.functions) == (4, 3, ["Scaled"])
    assert run(after, {"x": X})["y"].tolist() == run(before, {"x": X})["y"].tolist()
    info = {v.name: v for v in after.graph.value_info}
    if "n" in info:
        assert [d.dim_param or d.dim_value for d in info["n"].type.tensor_type.shape.dim] == ["N", 3]


def test_shared_intermediates_and_weights_stay(run):
    before, after, report = fused("""g (float[2, 3] x) => (float[2, 3] y, float[2, 3] z, float w) <float two = {2}> {
        m = Mul(x, two)
        y = Neg(m)
        z = Abs(m)
        w = Sqrt(two)
    }""")
    assert ops(after.graph) == ["Mul", "Scaled", "Abs", "Sqrt"]
    assert [i.name for i in after.graph.initializer] == ["two"] and report.fused[0].nodes == 1
    assert all(np.array_equal(run(before, {"x": X})[k], run(after, {"x": X})[k]) for k in "yzw")


def test_outputs_keep_their_names_and_types(run):
    before, after, _ = fused("""g (float[2, 3] x) => (float[2, 3] m, float[2, A] y, float[2, 3] same)
    <float two = {2}> {
        m = Mul(x, two)
        y = Neg(m)
        same = Identity(y)
    }""")
    assert ops(after.graph) == ["Mul", "Scaled", "Identity"] and after.graph.output == before.graph.output
    assert all(np.array_equal(run(before, {"x": X})[k], run(after, {"x": X})[k]) for k in ("m", "y", "same"))


def test_a_weight_that_is_a_graph_input_stays():
    _, after, report = fused("g (float[3] x, float two = {2}) => (float[3] y) { m = Mul(x, two) y = Neg(m) }")
    assert ops(after.graph) == ["Mul", "Neg"] and report.missed[0].reason == "the factor is not known"

    # folded from one that is not: the input and its default stay, what only the product needed goes
    _, after, report = fused("""g (float[3] x, float[3] k = {1, 2, 3}) => (float[3] y)
    <float half = {0.5}, float four = {4}> {
        two = Mul(half, four)
        kx = Add(x, k)
        m = Mul(kx, two)
        y = Neg(m)
    }""")
    assert ops(after.graph) == ["Add", "Scaled"] and report.fused[0].nodes == 3
    assert [i.name for i in after.graph.initializer] == ["k"] and [i.name for i in after.graph.input] == ["x", "k"]


def test_values_that_bodies_capture_stay(run):
    before, after, _ = fused("""g (float[2, 3] x, bool c) => (float[2, 3] y, float[2, 3] z) <float two = {2}> {
        m = Mul(x, two)
        y = Neg(m)
        z = If(c) <then_branch = t () => (float[2, 3] a) { a = Abs(m) }, else_branch = e () => (float[2, 3] b)
            { b = Mul(x, two) }>
    }""")
    assert ops(after.graph) == ["Mul", "Scaled", "If"] and [i.name for i in after.graph.initializer] == ["two"]
    for c in (True, False):
        feeds = {"x": X, "c": np.array(c)}
        assert all(np.array_equal(run(before, feeds)[k], run(after, feeds)[k]) for k in "yz")


def test_bodies_are_scopes(run):
    before, after, report = fused("""
    g (float[2, 3] x, bool c, int64 n) => (float[2, 3] y, float[2, 3] z, float[2, 3] s)
    <float two = {2}> {
        y = If(c) <then_branch = t () => (float[2, 3] a) { m1 = Mul(x, two) a = Neg(m1) },
                   else_branch = e () => (float[2, 3] b) { b = Neg(x) }>
        z = Loop(n, c, x) <body = l (int64 i, bool ci, float[2, 3] v) => (bool co, float[2, 3] vo)
            { co = Identity(ci) m2 = Mul(v, two) vo = Neg(m2) }>
        s = Scan<num_scan_inputs = 1, body = q (float[3] row) => (float[3] out) { m3 = Mul(row, two) out = Neg(m3) }>(x)
    }""")
    bodies = {a.g.name: ops(a.g) for node in after.graph.node for a in node.attribute if a.HasField("g")}
    assert bodies == {"t": ["Scaled"], "e": ["Neg"], "l": ["Identity", "Scaled"], "q": ["Scaled"]}
    assert sorted(f.scope for f in report.fused) == ["graph/n_s.body", "graph/n_y.then_branch", "graph/n_z.body"]
    assert [i.name for i in after.graph.initializer] == []
    assert (report.nodes_before, report.nodes_after) == (11, 8) and report.functions == ["Scaled"]
    for c in (True, False):
        feeds = {"x": X, "c": np.array(c), "n": np.array(3)}
        assert all(np.array_equal(run(before, feeds)[k], run(after, feeds)[k]) for k in "yzs")


def test_function_bodies_are_scopes(run):
    before, after, report = fused("""g (float[2, 3] x) => (float[2, 3] y) { y = my.f(x) }
    <domain: "my", opset_import: ["" : 18]>
    f (x) => (y) { two = Constant<value_float = 2.0>() m = Mul(x, two) y = Neg(m) }""", more=', "my" : 1')
    assert report.fused[0].scope == "function my::f"
    inner = next(f for f in after.functions if f.name == "f")
    assert ops(inner) == ["Scaled"] and {o.domain: o.version for o in inner.opset_import} == {"": 18, "custom.ops": 1}
    assert np.array_equal(run(before, {"x": X})["y"], run(after, {"x": X})["y"])


def test_a_function_of_another_opset_is_left_alone():
    _, after, report = fused("""g (float[2, 3] x) => (float[2, 3] y) { y = my.f(x) }
    <domain: "my", opset_import: ["" : 17]>
    f (x) => (y) { two = Constant<value_float = 2.0>() m = Mul(x, two) y = Neg(m) }""", more=', "my" : 1')
    assert ops(next(f for f in after.functions if f.name == "f")) == ["Constant", "Mul", "Neg"]
    assert "opset 17" in report.missed[0].reason and not report.fused


def test_order_stays_topological_and_names_unique(run):
    before, after, report = fused("""g (float[2, 3] x) => (float[2, 3] y) <float two = {2}> {
        a = Mul(x, two)
        b = Neg(a)
        c = Mul(b, two)
        d = Neg(c)
        n1 = Identity(d)
        n2 = Add(n1, b)
        y = Add(n2, d)
    }""", change=lambda proto: proto.graph.node[4].output.__setitem__(0, "d/Scaled") or
        proto.graph.node[5].input.__setitem__(0, "d/Scaled"))
    assert ops(after.graph) == ["Scaled", "Scaled", "Identity", "Add", "Add"] and len(report.fused) == 2
    outputs = [o for node in after.graph.node for o in node.output]
    names = [node.name for node in after.graph.node]
    assert len(set(outputs)) == len(outputs) and len(set(names)) == len(names)
    assert np.array_equal(run(before, {"x": X})["y"], run(after, {"x": X})["y"])


def test_metadata_is_merged():
    def annotate(proto):
        for node, entries in zip(proto.graph.node[1:3], ({"scope": "inner", "from": "m"}, {"scope": "outer"})):
            for key, value in entries.items():
                node.metadata_props.add(key=key, value=value)
        proto.metadata_props.add(key="author", value="me")
        proto.graph.doc_string, proto.graph.node[0].doc_string = "a graph", "a node"

    _, after, _ = fused(PLAIN, change=annotate)
    assert {p.key: p.value for p in after.graph.node[1].metadata_props} == {
        "scope": "outer", "from": "m", engine.PATTERN_KEY: "negated_double", engine.FROM_KEY: "n_m,n_n"}
    assert [(p.key, p.value) for p in after.metadata_props] == [("author", "me")]
    assert (after.graph.doc_string, after.graph.node[0].doc_string) == ("a graph", "a node")
    assert after.graph.node[1].name not in ("n_m", "n_n")


@pytest.mark.parametrize(("version", "expected"), [(7, 8), (8, 8), (10, 10)])
def test_ir_version_rises_only_for_functions(version, expected):
    _, after, report = fused(PLAIN, version=version)
    assert after.ir_version == report.ir_version_after == expected and report.ir_version_before == version
    assert {o.domain: o.version for o in after.opset_import} == {"": 18, "custom.ops": 1}
    before, same, report = fused(PLAIN.replace("Neg", "Exp"), version=version)
    assert same.SerializeToString() == before.SerializeToString() and not report.changed
    assert report.ir_version_after == version and report.functions == []


def test_nothing_matched_nothing_touched():
    before, same, report = fused(PLAIN.replace("{2}", "{3}"))
    assert same.SerializeToString() == before.SerializeToString() and report.to_dict()["fused"] == []
    assert [(m.reason, m.tensor, m.node, m.scope) for m in report.missed] == [
        ("the factor is 3, not 2", "two", "n_n", "graph")]


def test_two_runs_the_same_bytes():
    text = PLAIN.replace("y = Relu(n)", "m2 = Mul(n, two) n2 = Neg(m2) y = Add(n, n2)")
    assert len({fused(text)[1].SerializeToString() for _ in range(3)}) == 1


@pytest.mark.parametrize("opset", [11, 12])
def test_an_opset_below_the_operators_is_a_miss(opset):
    before, same, report = fused(PLAIN, opset=opset, version=7)
    assert same.SerializeToString() == before.SerializeToString()
    assert report.missed[0].reason == f"Scaled needs opset 13 or newer, this model has {opset}"


FOREIGN = '<domain: "custom.ops", opset_import: ["" : 18]> Scaled (x) => (y) { y = Neg(x) }'


def test_an_operator_that_the_model_defines_itself_is_left_alone():
    text = PLAIN.replace("Abs(x)", "custom.ops.Scaled(x)") + FOREIGN
    before, same, report = fused(text, more=', "custom.ops" : 1')
    assert same.SerializeToString() == before.SerializeToString()
    assert report.missed[0].reason == "the model defines custom.ops::Scaled itself"


def test_another_version_of_the_domain_is_left_alone():
    before, same, report = fused(PLAIN, more=', "custom.ops" : 2')
    assert same.SerializeToString() == before.SerializeToString()
    assert "imports version 2 of custom.ops" in report.missed[0].reason


def test_an_operator_used_without_a_function_is_left_alone():
    before, same, report = fused(PLAIN.replace("Abs(x)", "custom.ops.Scaled(x)"), more=', "custom.ops" : 1')
    assert same.SerializeToString() == before.SerializeToString()
    assert "without a function" in report.missed[0].reason


def test_a_second_run_serves_the_uses_of_the_first():
    _, after, _ = fused(PLAIN)
    grown = onnx.ModelProto.FromString(after.SerializeToString())
    grown.graph.node.extend(onnx.parser.parse_graph("""g (float[N, 3] n) => (float[N, 3] z) {
        two = Constant<value_float = 2.0>() k = Mul(n, two) z = Neg(k) }""").node)
    model = ir.from_proto(grown)
    report = engine.run(model, [NegatedDouble()])
    assert len(report.fused) == 1 and len(model.functions) == 1
    assert next(iter(model.functions.values())).doc_string.endswith("2 times in this model")


class ForeignDouble(NegatedDouble):
    """other::Double(x) becomes Scaled, and its input's first dim is opened with it."""

    name, anchors = "foreign_double", frozenset({"other::Double"})

    def match(self, node, scope):
        x, root = node.inputs[0], node.outputs[0]
        return Match(root, lambda builder: builder.custom("Scaled", [x], factor=2.0, dtype=x.dtype, shape=None), [node],
                     "Scaled", shapes={x: ir.Shape(["M", 3]), root: ir.Shape(["M", 3])})


def test_anchors_of_other_domains_and_shapes_that_change(run):
    proto = onnx.parser.parse_model(HEAD.format(ir=9, opset=18, more=', "other" : 1') + """
        g (float[2, 3] x) => (float[2, 3] y) { y = other.Double(x) }""")
    model = ir.from_proto(proto)
    assert not engine.run(ir.from_proto(proto), [NegatedDouble()]).fused
    assert engine.run(model, [ForeignDouble()]).fused[0].operator == "Scaled"
    after = ir.to_proto(model)
    onnx.checker.check_model(after, full_check=True)
    for value in (after.graph.input[0], after.graph.output[0]):
        assert [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim] == ["M", 3]
    assert run(after, {"x": np.ones((5, 3), np.float32)})["y"].tolist() == [[2, 2, 2]] * 5


def test_a_bug_in_a_pattern_names_pattern_and_node():
    message = r"negated_double failed at node 'n_n' \(Neg\) in graph.*thirteen"
    with pytest.raises(InternalError, match=message) as caught:
        fused(PLAIN.replace("{2}", "{13}"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_bug_while_building_names_pattern_and_node():
    class Clumsy(NegatedDouble):
        def match(self, node, scope):
            found = super().match(node, scope)
            return found and Match(found.root, lambda builder: builder.missing, found.covers, "Scaled")

    model = ir.from_proto(onnx.parser.parse_model(HEAD.format(ir=9, opset=18, more="") + PLAIN))
    with pytest.raises(InternalError, match="negated_double"):
        engine.run(model, [Clumsy()])


class Doubled(NegatedDouble):
    """Neg(Neg(x)) vanishes."""

    name, operators = "vanishing", ()

    def match(self, node, scope):
        inner = node.inputs[0].producer()
        if inner is None or inner.op_type != "Neg":
            return None
        return Match(node.outputs[0], lambda builder: inner.inputs[0], [node, inner], None)


@pytest.mark.parametrize("tail", ["y = Identity(b)", "y = Neg(c)\n c2 = Identity(c)"])
def test_a_chain_that_vanishes(run, tail):
    last = "c = Neg(b)" if "c" in tail else ""
    text = f"g (float[2, 3] x) => (float[2, 3] y) {{ r = Relu(x) a = Neg(r) b = Neg(a) {last} {tail} }}"
    proto = onnx.parser.parse_model(HEAD.format(ir=7, opset=18, more="") + text)
    model = ir.from_proto(proto)
    report = engine.run(model, [Doubled()])
    after = ir.to_proto(model)
    onnx.checker.check_model(after, full_check=True)
    assert report.functions == [] and after.ir_version == 7 and [o.name for o in after.graph.output] == ["y"]
    assert "Neg" not in ops(after.graph)
    assert np.array_equal(run(proto, {"x": X - 2})["y"], run(after, {"x": X - 2})["y"])


def test_a_vanishing_chain_that_is_an_output_keeps_its_name(run):
    proto = onnx.parser.parse_model(HEAD.format(ir=8, opset=18, more="") + """
        g (float[2, 3] x) => (float[2, 3] y, float[2, 3] z) { a = Neg(x) y = Neg(a) z = Abs(y) }""")
    model = ir.from_proto(proto)
    engine.run(model, [Doubled()])
    after = ir.to_proto(model)
    onnx.checker.check_model(after, full_check=True)
    assert ops(after.graph) == ["Identity", "Abs"] and after.graph.output == proto.graph.output
    assert all(np.array_equal(run(proto, {"x": X})[k], run(after, {"x": X})[k]) for k in "yz")
