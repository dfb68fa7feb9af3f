"""Small models whose constants are enormous once something computes them, by the way they grow.

Each kind makes a value; `SINKS` put it where a pattern would want to know it: as the bounds of a flip, the indices of
one, the base of a grid.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Made = tuple[list[onnx.NodeProto], str]  # nodes, and the value that they make
HUGE = 4_000_000  # elements: seconds, once something in Python looks at each
BEYOND = 1 << 40
STEPS = 60

info = helper.make_tensor_value_info


def node(operator: str, inputs: list[str], output: str, **attributes) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, [output], name=f"{operator}_{output}", **attributes)


def constant(name: str, value, dtype=np.int64) -> onnx.NodeProto:
    return node("Constant", [], name, value=numpy_helper.from_array(np.array(value, dtype), name))


def text(name: str, value: str) -> onnx.NodeProto:
    return node("Constant", [], name, value=helper.make_tensor(name, TensorProto.STRING, [1], [value.encode()]))


def filled(name: str, shape: list[int], value=1, dtype=np.int64) -> list[onnx.NodeProto]:
    fill = numpy_helper.from_array(np.array([value], dtype))
    return [constant(f"{name}_shape", shape), node("ConstantOfShape", [f"{name}_shape"], name, value=fill)]


def repeated(first: list[onnx.NodeProto], start: str, operator: str, count: int = STEPS, **attributes) -> Made:
    """v = operator(v, v), again and again."""
    nodes, name = list(first), start
    for k in range(count):
        nodes.append(node(operator, [name, name], f"v{k}", **attributes))
        name = f"v{k}"
    return nodes, name


def range_beyond() -> Made:
    return [constant("from", 0), constant("to", BEYOND), constant("by", 1),
            node("Range", ["from", "to", "by"], "v")], "v"


def range_tiny_step() -> Made:
    return [constant("from", 0, np.float32), constant("to", 1, np.float32), constant("by", 1e-38, np.float32),
            node("Range", ["from", "to", "by"], "v")], "v"


def range_huge() -> Made:
    return [constant("from", 0), constant("to", HUGE), constant("by", 1), node("Range", ["from", "to", "by"], "v")], "v"


def range_of_text() -> Made:
    return [text("from", "a"), text("to", "b"), text("by", "c"), node("Range", ["from", "to", "by"], "v")], "v"


def expand_beyond() -> Made:
    return [constant("one", [1]), constant("shape", [1 << 20, 1 << 20]), node("Expand", ["one", "shape"], "v")], "v"


def expand_then_write() -> Made:
    """A broadcast costs nothing until something is computed of it."""
    return [constant("one", [1]), constant("shape", [HUGE]), node("Expand", ["one", "shape"], "wide"),
            node("Add", ["wide", "wide"], "v")], "v"


def tile_beyond() -> Made:
    return [constant("one", [1, 2, 3]), constant("times", [BEYOND]), node("Tile", ["one", "times"], "v")], "v"


def tile_doubling() -> Made:
    nodes, name = [constant("v", [1, 2]), constant("two", [2])], "v"
    for k in range(STEPS):
        nodes.append(node("Tile", [name, "two"], f"v{k}"))
        name = f"v{k}"
    return nodes, name


def concat_doubling() -> Made:
    return repeated([constant("v", [1, 2])], "v", "Concat", axis=0)


def filled_beyond() -> Made:
    return filled("v", [BEYOND, BEYOND]), "v"


def filled_many(elements: int = HUGE) -> Made:
    """Each below the limit, all of them together not."""
    nodes = [n for k in range(40) for n in filled(f"p{k}", [elements], k)]
    return [*nodes, node("Sum", [f"p{k}" for k in range(40)], "v")], "v"


def shape_as_long_as_memory() -> Made:
    """A tensor of shape [1, 1, 1, ...] with as many axes as fit."""
    return [*filled("ones", [HUGE]), node("ConstantOfShape", ["ones"], "v")], "v"


def reshape_as_long_as_memory() -> Made:
    return [constant("one", [1]), *filled("ones", [HUGE]), node("Reshape", ["one", "ones"], "v")], "v"


def expand_as_long_as_memory() -> Made:
    return [constant("one", [1]), *filled("ones", [HUGE]), node("Expand", ["one", "ones"], "v")], "v"


def tile_as_long_as_memory() -> Made:
    return [constant("one", [1]), *filled("ones", [HUGE]), node("Tile", ["one", "ones"], "v")], "v"


def slice_of_many_axes() -> Made:
    return [constant("five", [5, 4, 3, 2, 1]), *filled("starts", [HUGE], 0), *filled("ends", [HUGE], 5),
            *filled("axes", [HUGE], 0), *filled("by", [HUGE], 1),
            node("Slice", ["five", "starts", "ends", "axes", "by"], "v")], "v"


def unsqueeze_many_axes() -> Made:
    return [constant("one", [1]), *filled("axes", [HUGE]), node("Unsqueeze", ["one", "axes"], "v")], "v"


def pad_many() -> Made:
    return [constant("one", [1]), *filled("pads", [HUGE], 1), node("Pad", ["one", "pads"], "v")], "v"


def pad_beyond() -> Made:
    return [constant("one", [1]), constant("pads", [BEYOND, BEYOND]), node("Pad", ["one", "pads"], "v")], "v"


def split_many() -> Made:
    return [*filled("long", [HUGE]), *filled("sizes", [HUGE], 1),
            helper.make_node("Split", ["long", "sizes"], ["v", "rest"], axis=0)], "v"


def reverse_many_rows() -> Made:
    return [*filled("rows", [2, HUGE // 2]), *filled("lengths", [HUGE // 2], 2),
            node("ReverseSequence", ["rows", "lengths"], "turned", batch_axis=1, time_axis=0), constant("row", [-1]),
            node("Reshape", ["turned", "row"], "v")], "v"


def product_beyond() -> Made:
    return [*filled("a", [9000, 9000], 1, np.float32), node("MatMul", ["a", "a"], "v")], "v"


def products_in_a_row() -> Made:
    """Each of two seconds."""
    return repeated(filled("a", [1500, 1500], 0, np.float32), "a", "MatMul", 400)


def einsum_beyond() -> Made:
    nodes = filled("a", [9000], 1, np.float32)
    return [*nodes, node("Einsum", ["a", "a", "a", "a"], "v", equation="i,j,k,l->")], "v"


def one_hot_beyond() -> Made:
    return [constant("at", [0, 1]), constant("depth", BEYOND), constant("values", [0, 1]),
            node("OneHot", ["at", "depth", "values"], "v")], "v"


def gather_squares() -> Made:
    nodes = [constant("v", np.zeros((2, 2, 2)))]
    return [*nodes, *repeated([], "v", "Gather", 8, axis=0)[0]], "v7"


def text_doubling() -> Made:
    """Add joins text: 2^60 letters."""
    return repeated([text("s", "ha")], "s", "Add")


def text_times_number() -> Made:
    return [text("s", "ha"), constant("many", [BEYOND]), node("Mul", ["s", "many"], "v")], "v"


def powers() -> Made:
    """Integers that wrap, by the thousand."""
    return repeated([constant("v", [3, 5])], "v", "Pow")


def eye_of_a_broadcast() -> Made:
    return [constant("one", [[1]]), constant("shape", [9000, 9000]), node("Expand", ["one", "shape"], "wide"),
            node("EyeLike", ["wide"], "v")], "v"


def non_zero_of_a_broadcast() -> Made:
    return [constant("one", [[1]]), constant("shape", [9000, 9000]), node("Expand", ["one", "shape"], "wide"),
            node("NonZero", ["wide"], "v")], "v"


def grid_beyond() -> Made:
    return [constant("still", [[[1, 0, 0], [0, 1, 0]]], np.float32), constant("size", [1, 1, 1 << 20, 1 << 20]),
            node("AffineGrid", ["still", "size"], "v")], "v"


def cumulated() -> Made:
    return [*filled("ones", [HUGE]), constant("axis", 0), node("CumSum", ["ones", "axis"], "v")], "v"


def scattered() -> Made:
    return [*filled("zeros", [HUGE], 0), *filled("at", [HUGE, 1], 0), *filled("ones", [HUGE]),
            node("ScatterND", ["zeros", "at", "ones"], "v", reduction="add")], "v"


KINDS = [range_beyond, range_tiny_step, range_huge, range_of_text, expand_beyond, expand_then_write, tile_beyond,
         tile_doubling, concat_doubling, filled_beyond, filled_many, shape_as_long_as_memory,
         reshape_as_long_as_memory, expand_as_long_as_memory, tile_as_long_as_memory, slice_of_many_axes,
         unsqueeze_many_axes, pad_many, pad_beyond, split_many, reverse_many_rows, product_beyond, products_in_a_row,
         einsum_beyond, one_hot_beyond, gather_squares, text_doubling, text_times_number, powers, eye_of_a_broadcast,
         non_zero_of_a_broadcast, grid_beyond, cumulated, scattered]


def bounds(made: Made) -> tuple[list, list]:
    """x[start:value:-1], turned."""
    nodes, value = made
    return [*nodes, constant("minus", [-1]), constant("axis_2", [2]),
            node("Slice", ["x", "minus", value, "axis_2", "minus"], "flipped"),
            node("Transpose", ["flipped"], "y", perm=[0, 1, 3, 2])], [info("y", TensorProto.FLOAT, list("abcd"))]


def indices(made: Made) -> tuple[list, list]:
    nodes, value = made
    return [*nodes, node("Gather", ["x", value], "flipped", axis=2),
            node("Transpose", ["flipped"], "y", perm=[0, 1, 3, 2])], [info("y", TensorProto.FLOAT, list("abcd"))]


def base(made: Made) -> tuple[list, list]:
    """The base grid of an affine grid."""
    nodes, value = made
    return [*nodes, node("Cast", [value], "floats", to=TensorProto.FLOAT), constant("columns", [1, -1, 3]),
            node("Reshape", ["floats", "columns"], "base"), node("Transpose", ["theta"], "theta_t", perm=[0, 2, 1]),
            node("MatMul", ["base", "theta_t"], "flat"), constant("image", [1, 24, -1, 2]),
            node("Reshape", ["flat", "image"], "grid"),
            node("GridSample", ["x", "grid"], "y")], [info("y", TensorProto.FLOAT, list("abcd"))]


def size(made: Made) -> tuple[list, list]:
    """The size of ai.onnx's AffineGrid."""
    nodes, value = made
    return [*nodes, node("AffineGrid", ["theta", value], "y")], [info("y", TensorProto.FLOAT, list("abcd"))]


SINKS = [bounds, indices, base, size]


def model(made: Made, sink: Callable[[Made], tuple[list, list]]) -> onnx.ModelProto:
    """A model that needs what was made."""
    nodes, outputs = sink(made)
    graph = helper.make_graph(nodes, "bomb", [info("x", TensorProto.FLOAT, [1, 3, 24, 40]),
                                              info("theta", TensorProto.FLOAT, [1, 2, 3])], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
