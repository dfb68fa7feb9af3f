"""What is known of shapes and dtypes: inferred from the model's inputs, whatever else the file says."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from rewriter.graphs import bodies
from rewriter.shapes import ShapeTable

HEAD = '<ir_version: 10, opset_import: ["" : 18, "other" : 1]>\n'


def table_of(proto):
    """(ShapeTable, value by name)."""
    model = ir.from_proto(onnx.parser.parse_model(HEAD + proto) if isinstance(proto, str) else proto)
    graphs = [model.graph, *(f.graph for f in model.functions.values())]
    graphs += [body for graph in graphs for node in graph.all_nodes() for body in bodies(node)]
    values = {v.name: v for graph in graphs for v in (*graph.inputs, *graph.initializers.values())}
    values |= {v.name: v for graph in graphs for node in graph for v in node.outputs}
    return ShapeTable(model), values


def test_dims_follow_from_the_inputs():
    table, values = table_of("""g (float[N, 3, H, W] x) => (float[a] y) <int64[2] two = {0, -1}, float[4, 2] k> {
        t = Transpose<perm = [0, 2, 3, 1]>(x)
        r = Reshape(t, two)
        s = Shape(x)
        y = Identity(r)
    }""")
    assert table.shape(values["x"]) == ("N", 3, "H", "W")
    assert table.shape(values["t"]) == ("N", "H", "W", 3)
    assert table.shape(values["s"]) == (4,) and table.dtype(values["s"]) == ir.DataType.INT64
    assert table.shape(values["r"])[0] == "N" and isinstance(table.shape(values["r"])[1], str)
    assert table.anchors == {"N", "H", "W"}
    assert table.shape(values["y"]) == table.shape(values["r"])  # not [a], which is only declared


def test_value_info_is_never_believed():
    proto = onnx.parser.parse_model(HEAD + """g (float[N, 3] x, bool c) => (float[9, 9] y) {
        t = Neg(x)
        u = Transpose(t)
        w = If(c) <then_branch = a () => (int64[7] p) { p = Neg(u) }, else_branch = b () => (float[8] q) { q = Abs(u) }>
        y = Identity(w)
    }""")
    wrong = helper.make_tensor_value_info("t", TensorProto.DOUBLE, [5, 5])
    proto.graph.value_info.append(wrong)
    table, values = table_of(proto)
    assert {name: table.shape(values[name]) for name in "tupqwy"} == {
        "t": ("N", 3), "u": (3, "N"), "p": (3, "N"), "q": (3, "N"), "w": (3, "N"), "y": (3, "N")}
    assert {table.dtype(values[name]) for name in "tupqwy"} == {ir.DataType.FLOAT}


@pytest.mark.parametrize("dim", [None, -1, ""])
def test_unknown_dims_are_unique_symbols_that_propagate(dim):
    proto = onnx.parser.parse_model(HEAD + "g (float[2, 3] x, float[2, 3] z) => (float[a, b] y) { y = Transpose(x) }")
    for value in proto.graph.input:
        value.type.tensor_type.shape.dim[0].Clear()
        if dim == -1:
            value.type.tensor_type.shape.dim[0].dim_value = -1
        elif dim == "":
            value.type.tensor_type.shape.dim[0].dim_param = ""
    table, values = table_of(proto)
    first, second = table.shape(values["x"])[0], table.shape(values["z"])[0]
    assert isinstance(first, str) and isinstance(second, str) and first != second
    assert table.shape(values["y"]) == (3, first) and table.anchors == {first, second}


def test_unknown_rank_stays_unknown():
    proto = onnx.parser.parse_model(HEAD + "g (float x) => (float y) { y = Neg(x) }")
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    table, values = table_of(proto)
    assert table.shape(values["x"]) is None and table.shape(values["y"]) is None
    assert table.dtype(values["y"]) == ir.DataType.FLOAT


@pytest.mark.parametrize("columns", [2, 2000])
def test_weights_of_any_size_have_their_shapes(columns):
    kind, zeros = f"float[2, {columns}]", ", ".join(["0"] * 2 * columns)
    table, values = table_of(f"""g ({kind} x, bool c) => (float[a, b] y) <{kind} k = {{{zeros}}}> {{
        outer = Add(x, k)
        y = If(c) <
            then_branch = t () => (float[p, q] o) <{kind} w = {{{zeros}}}> {{ o = Add(outer, w) }},
            else_branch = e () => (float[r, s] u) {{ u = Neg(x) }}>
    }}""")
    assert {name: table.shape(values[name]) for name in ("outer", "o", "u", "y", "k", "w")} == dict.fromkeys(
        ("outer", "o", "u", "y", "k", "w"), (2, columns))


LOOP = """g (float[2, 3] x, float[N, 4] z, int64 n, bool c) => (float[a, b] y, float[d, e] v) {{
    y, v = Loop(n, c, x, z) <body = b (int64 i, bool ci, float[{declared}] s, float[{other}] r)
        => (bool co, float[7] so, float[8] ro) {{ co = Identity(ci) so = {step} ro = Neg(r) }}>
}}"""


@pytest.mark.parametrize(("declared", "step", "expected"), [
    ("2, 3", "Neg(s)", (2, 3)),
    ("7, 7", "Neg(s)", None),  # not what goes in
    ("2, 3", "Transpose(s)", None),  # not what comes out
    ("2, 3", "Concat<axis = 0>(s, s)", None),
    ("K, 3", "Neg(s)", None),  # K claims to be the K of others
])
def test_loop_states_are_believed_by_induction(declared, step, expected):
    table, values = table_of(LOOP.format(declared=declared, other="N, 4", step=step))
    assert table.shape(values["s"]) == expected and table.dtype(values["s"]) == ir.DataType.FLOAT
    assert table.shape(values["r"]) == ("N", 4) and table.shape(values["ro"]) == ("N", 4)
    assert table.shape(values["i"]) == () and table.shape(values["ci"]) == ()


def test_loop_states_without_a_shape_are_unknown():
    table, values = table_of(LOOP.format(declared="", other="M, 4", step="Neg(s)"))
    assert table.shape(values["s"]) is None and table.shape(values["r"]) is None


@pytest.mark.parametrize(("declared", "expected"), [("2, 3", (2, 3)), ("5, 3", None)])
def test_scanned_slices(declared, expected):
    table, values = table_of(f"""g (float[2] x, float[2, N, 3] z) => (float[a] y, float[p, q, r] v) {{
        y, v = Scan<num_scan_inputs = 1, scan_input_axes = [1], body = b (float[2] s, float[{declared}] t)
            => (float[2] so, float[2, 3] to) {{ so = Neg(s) to = Neg(t) }}>(x, z)
    }}""")
    assert table.shape(values["s"]) == (2,)
    assert table.shape(values["t"]) == expected and table.shape(values["to"]) == (2, 3)


def test_functions_know_what_all_their_calls_give():
    table, values = table_of("""g (float[2, 3] x, float[N, 3] z) => (float[a, b] y, float[d, e] v) {
        y = other.F(x, x)
        v = other.F(z, x)
    }
    <domain: "other", opset_import: ["" : 18]> F (p, q) => (o) { o = Add(p, q) m = Neg(q) }""")
    assert table.shape(values["q"]) == (2, 3) and table.shape(values["m"]) == (2, 3)
    assert table.shape(values["p"])[1] == 3 and isinstance(table.shape(values["p"])[0], str)
    assert table.dtype(values["o"]) == ir.DataType.FLOAT


def test_a_model_that_inference_refuses_keeps_what_its_inputs_say():
    table, values = table_of("""g (float[2, 3] x, int64[4] z) => (float[a] y) <float[5] k = {1, 2, 3, 4, 5}> {
        bad = MatMul(x, z)
        t = Neg(x)
        y = Add(bad, k)
    }""")
    assert table.shape(values["x"]) == (2, 3) and table.shape(values["k"]) == (5,)
    assert table.shape(values["t"]) == (2, 3)


def test_adopted_values():
    table, values = table_of("g (float[N, 3] x) => (float[a, b] y) { y = Neg(x) }")
    made = ir.Value(name="made", type=ir.TensorType(ir.DataType.FLOAT16), shape=ir.Shape([2, "M", None]))
    table.adopt(made)
    assert table.shape(made) == (2, "M", "made.2") and table.dtype(made) == ir.DataType.FLOAT16
    table.adopt(made, like=values["y"])
    assert table.shape(made) == ("N", 3) and table.dtype(made) == ir.DataType.FLOAT


def test_inference_gets_no_weights():
    weights = np.zeros((1 << 12, 1 << 12), np.float32)  # 64 MiB
    node = helper.make_node("MatMul", ["x", "k"], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1 << 12])
    graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")],
                              [onnx.numpy_helper.from_array(weights, "k")])
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    assert ShapeTable(model).shape(model.graph.outputs[0]) == ("N", 1 << 12)
