"""What went and what came, and which belongs to which."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper
from small_models import HEIGHT, WIDTH, plain, stn

import rewriter
from rewriter.comparing.fragments import changes, fragments, walk


@pytest.fixture
def pair():
    model = stn(extra_node=True)
    return model, rewriter.fuse(model)[0]


def test_changes(pair):
    gone, come = changes(*pair)
    assert [place.node.op_type for place in gone] == ["Transpose", "MatMul", "Reshape", "GridSample"]
    assert [place.node.op_type for place in come] == ["AffineGridSample"]
    assert [place.position for place in gone] == [0, 1, 2, 3]
    assert changes(pair[0], pair[0]) == ([], [])


def test_fragments(pair):
    (fragment,) = fragments(*pair)
    assert [piece.operator for piece in fragment.before] == ["Transpose", "MatMul", "Reshape", "GridSample"]
    assert [piece.sources for piece in fragment.before] == [(), (0,), (1,), (2,)]
    assert fragment.before[1].constants == HEIGHT * WIDTH * 3 * 4
    assert [(piece.operator, piece.custom) for piece in fragment.after] == [("AffineGridSample", True)]
    assert fragment.count == 1


def twice(nodes):
    """Two chains of the same nodes, from x and from y."""
    made, names = [], {}
    for source in "xy":
        names[source] = source
        for index, (op, domain) in enumerate(nodes):
            output = f"{source}_out" if index == len(nodes) - 1 else f"{source}_{op}"
            made.append(helper.make_node(op, [names[source]], [output], domain=domain, name=output))
            names[source] = output
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in
              ("x", "y", "x_out", "y_out")}
    graph = helper.make_graph(made, "g", [values["x"], values["y"]], [values["x_out"], values["y_out"]])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("custom.ops", 1)])


def test_the_same_form_is_counted():
    (fragment,) = fragments(twice([("Sin", ""), ("Cos", "")]), twice([("Turn", "custom.ops")]))
    assert fragment.count == 2
    assert [piece.operator for piece in fragment.before] == ["Sin", "Cos"]


def test_nested_graphs_are_walked():
    inner = plain().graph
    node = helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)
    model = helper.make_model(helper.make_graph([node], "g", [], []))
    assert next((place.position, place.graph) for place in walk(model)) == (0, "graph")
    assert {place.graph for place in walk(model)} == {"graph", "graph/If z.then_branch", "graph/If z.else_branch"}
    other = onnx.ModelProto()
    other.CopyFrom(model)
    other.graph.node[0].attribute[0].g.node[0].op_type = "Cos"
    gone, come = changes(model, other)
    assert [place.node.op_type for place in gone] == [inner.node[0].op_type]
    assert [place.node.op_type for place in come] == ["Cos"]
