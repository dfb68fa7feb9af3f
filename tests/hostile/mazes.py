"""Models that are deep, long or that call themselves: what takes a program's stack, or a power of what was written."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
from hostile.bombs import constant, info, node
from onnx import TensorProto, helper, numpy_helper

LONG = 4_000
DOMAIN = "own"


def model(nodes, *, functions=(), inputs=None, initializers=(), output="y", opset=20) -> onnx.ModelProto:
    inputs = inputs or [info("x", TensorProto.FLOAT, [1, 3, 24, 40])]
    graph = helper.make_graph(nodes, "maze", inputs, [info(output, TensorProto.FLOAT, list("abcd"))], initializers)
    imports = [helper.make_opsetid("", opset), *([helper.make_opsetid(DOMAIN, 1)] if functions else [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=9, functions=functions)


def _function(name: str, nodes) -> onnx.FunctionProto:
    return helper.make_function(DOMAIN, name, ["a"], ["b"], nodes,
                                [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)])


def _call(name: str, source: str, output: str) -> onnx.NodeProto:
    return helper.make_node(name, [source], [output], domain=DOMAIN, name=f"{name}_{output}")


FLIP = [constant("minus", [-1]), constant("first", [-(1 << 62)]), constant("at", [2])]


def _turn(source: str, output: str, k: int | str = "") -> list[onnx.NodeProto]:
    """Flip and transpose: one Rot90."""
    return [node("Slice", [source, "minus", "first", "at", "minus"], f"flipped{k}"),
            node("Transpose", [f"flipped{k}"], output, perm=[0, 1, 3, 2])]


def function_laughs(depth: int = 40) -> onnx.ModelProto:
    """Each function calls the next one twice."""
    functions = [_function(f"f{k}", [_call(f"f{k + 1}", "a", "m"), _call(f"f{k + 1}", "m", "b")])
                 for k in range(depth)]
    functions.append(_function(f"f{depth}", [node("Relu", ["a"], "b")]))
    return model([_call("f0", "x", "laughed"), *FLIP, *_turn("laughed", "y")], functions=functions)


def function_laughs_wide() -> onnx.ModelProto:
    """Each function calls the next one a thousand times."""
    functions = [_function(f"f{k}", [_call(f"f{k + 1}", "a" if i == 0 else f"m{i}", f"m{i + 1}" if i < 999 else "b")
                                     for i in range(1000)]) for k in range(4)]
    functions.append(_function("f4", [node("Relu", ["a"], "b")]))
    return model([_call("f0", "x", "laughed"), *FLIP, *_turn("laughed", "y")], functions=functions)


def function_calls_itself() -> onnx.ModelProto:
    return model([_call("f", "x", "called"), *FLIP, *_turn("called", "y")],
                 functions=[_function("f", [_call("f", "a", "b")])])


def functions_call_each_other() -> onnx.ModelProto:
    return model([_call("f", "x", "called"), *FLIP, *_turn("called", "y")], functions=[
        _function("f", [_call("g", "a", "b")]), _function("g", [_call("f", "a", "b")])])


def function_calls_itself_in_a_body() -> onnx.ModelProto:
    branch = helper.make_graph([_call("f", "a", "inner")], "branch", [], [onnx.ValueInfoProto(name="inner")])
    taken = helper.make_node("If", ["true"], ["b"], then_branch=branch, else_branch=branch, name="if")
    return model([_call("f", "x", "called"), *FLIP, *_turn("called", "y")],
                 functions=[_function("f", [constant("true", True, bool), taken])])


def function_bears_the_name_of_ours_and_calls_itself() -> onnx.ModelProto:
    made = model([helper.make_node("Rot90", ["x"], ["y"], domain="custom.ops", k=1, axes=[2, 3])])
    made.opset_import.append(helper.make_opsetid("custom.ops", 1))
    made.functions.append(helper.make_function(
        "custom.ops", "Rot90", ["a"], ["b"], [helper.make_node("Rot90", ["a"], ["b"], domain="custom.ops")],
        [helper.make_opsetid("", 20), helper.make_opsetid("custom.ops", 1)], doc_string="onnx-warpfuse"))
    return made


def long_chain_of_functions(depth: int = 3000) -> onnx.ModelProto:
    """Each function calls the next one once: as deep as it is long."""
    functions = [_function(f"f{k}", [_call(f"f{k + 1}", "a", "b")]) for k in range(depth)]
    functions.append(_function(f"f{depth}", [node("Relu", ["a"], "b")]))
    return model([_call("f0", "x", "called"), *FLIP, *_turn("called", "y")], functions=functions)


def nested_ifs(depth: int = 30) -> onnx.ModelProto:
    """As many as protobuf parses (a message of 100 levels), each a step of the chain."""
    made = _turn("x", "t", "deepest")
    for k in range(depth):
        branch = helper.make_graph(made, "branch", [], [info("t", TensorProto.FLOAT, list("abcd"))])
        made = [helper.make_node("If", ["flag"], ["t"], then_branch=branch, else_branch=branch, name=f"if{k}")]
        if k > 3:  # the other branch as well would double it each time
            other = helper.make_graph([node("Identity", ["x"], "t")], "other", [],
                                      [info("t", TensorProto.FLOAT, list("abcd"))])
            made[0].attribute[1].g.CopyFrom(other)
    return model([*FLIP, *made, node("Identity", ["t"], "y")], inputs=[
        info("x", TensorProto.FLOAT, [1, 3, 24, 40]), info("flag", TensorProto.BOOL, [])])


def transposes(count: int = LONG) -> onnx.ModelProto:
    names = ["x", *(f"t{k}" for k in range(count - 1)), "y"]
    return model([node("Transpose", [a], b, perm=[0, 1, 3, 2]) for a, b in pairwise(names)])


def turns(count: int = LONG // 2) -> onnx.ModelProto:
    names = ["x", *(f"t{k}" for k in range(count - 1)), "y"]
    return model([*FLIP, *(n for k, (a, b) in enumerate(pairwise(names)) for n in _turn(a, b, k))])


def turns_that_all_are_outputs(count: int = LONG // 20) -> onnx.ModelProto:
    made = turns(count)
    made.graph.output.extend(info(n.output[0], TensorProto.FLOAT, list("abcd")) for n in made.graph.node[3:-1])
    return made


def turns_that_all_are_read(count: int = LONG // 20) -> onnx.ModelProto:
    made = turns(count)
    names = [n.output[0] for n in made.graph.node[3:-1] if n.op_type == "Transpose"]
    made.graph.node.extend(node("Relu", [name], f"r_{name}") for name in names)
    made.graph.output.extend(info(f"r_{name}", TensorProto.FLOAT, list("abcd")) for name in names)
    return made


def turns_and_maps(count: int = LONG // 4) -> onnx.ModelProto:
    """A Relu behind every Transpose: each section looks at all of those before it."""
    names = ["x", *(f"t{k}" for k in range(count - 1)), "y"]
    return model([*FLIP, *(n for k, (a, b) in enumerate(pairwise(names))
                           for n in (*_turn(a, f"m{k}", k), node("Relu", [f"m{k}"], b)))])


def transposes_and_maps(count: int = LONG // 2) -> onnx.ModelProto:
    names = ["x", *(f"t{k}" for k in range(count - 1)), "y"]
    return model([n for k, (a, b) in enumerate(pairwise(names))
                  for n in (node("Transpose", [a], f"m{k}", perm=[0, 1, 3, 2]), node("Relu", [f"m{k}"], b))])


def maps_behind_a_turn(count: int = LONG) -> onnx.ModelProto:
    names = ["turned", *(f"t{k}" for k in range(count - 1)), "mapped"]
    return model([*FLIP, *_turn("x", "turned"), *(node("Relu", [a], b) for a, b in pairwise(names)),
                  *_turn("mapped", "y", "again")])


def factors_behind_turns(count: int = LONG // 2) -> onnx.ModelProto:
    names = ["x", *(f"t{k}" for k in range(count - 1)), "y"]
    return model([*FLIP, constant("two", 2, np.float32),
                  *(n for k, (a, b) in enumerate(pairwise(names))
                    for n in (*_turn(a, f"m{k}", k), node("Mul", [f"m{k}", "two"], b)))])


def shapes_of_every_step(count: int = LONG // 10) -> onnx.ModelProto:
    """The bounds of each Slice come from a Shape of the step before it, its size an input's."""
    nodes, source = list(FLIP), "x"
    for k in range(count):
        nodes += [node("Shape", [source], f"s{k}"), constant(f"i{k}", [2]),
                  node("Gather", [f"s{k}", f"i{k}"], f"h{k}", axis=0), node("Neg", [f"h{k}"], f"n{k}"),
                  constant(f"one{k}", [1]), node("Sub", [f"n{k}", f"one{k}"], f"e{k}"),
                  node("Slice", [source, "minus", f"e{k}", "at", "minus"], f"f{k}"),
                  node("Relu", [f"f{k}"], f"x{k}")]
        source = f"x{k}"
    nodes.append(node("Identity", [source], "y"))
    return model(nodes, inputs=[info("x", TensorProto.FLOAT, ["N", "C", "H", "W"])])


def arithmetic_on_sizes(count: int = LONG // 10) -> onnx.ModelProto:
    """Every Slice's bound is computed from the one before it."""
    nodes = [*FLIP, node("Shape", ["x"], "s"), constant("two", [2]), node("Gather", ["s", "two"], "b", axis=0)]
    source, bound = "x", "b"
    for k in range(count):
        nodes += [node("Add", [bound, "two"], f"p{k}"), node("Sub", [f"p{k}", "two"], f"b{k}"),
                  node("Neg", [f"b{k}"], f"n{k}"), node("Add", [f"n{k}", "minus"], f"e{k}"),
                  node("Slice", [source, "minus", f"e{k}", "at", "minus"], f"f{k}"), node("Relu", [f"f{k}"], f"x{k}")]
        source, bound = f"x{k}", f"b{k}"
    nodes.append(node("Identity", [source], "y"))
    return model(nodes, inputs=[info("x", TensorProto.FLOAT, ["N", "C", "H", "W"])])


def sums_of_grids(count: int = LONG // 10) -> onnx.ModelProto:
    """A diamond at every step: 2^n paths from the grid back to theta."""
    nodes, source = [], "theta"
    for k in range(count):
        nodes.append(node("Add", [source, source], f"v{k}"))
        source = f"v{k}"
    columns = numpy_helper.from_array(np.ones((1, 960, 3), np.float32), "base")
    image = numpy_helper.from_array(np.array([1, 24, 40, 2]), "image")
    nodes += [node("Transpose", [source], "theta_t", perm=[0, 2, 1]), node("MatMul", ["base", "theta_t"], "flat"),
              node("Reshape", ["flat", "image"], "grid"), node("GridSample", ["x", "grid"], "y")]
    return model(nodes, inputs=[info("x", TensorProto.FLOAT, [1, 3, 24, 40]),
                                info("theta", TensorProto.FLOAT, [1, 2, 3])], initializers=[columns, image])


def many_samplers_of_one_slice(count: int = LONG // 10) -> onnx.ModelProto:
    """Every step of a long linear chain is sampled at."""
    nodes, source = [], "grid"
    for k in range(count):
        nodes += [node("Add", [source, "one"], f"g{k}"), node("GridSample", ["x", f"g{k}"], f"y{k}")]
        source = f"g{k}"
    nodes.append(node("Sum", [f"y{k}" for k in range(count)], "y"))
    return model(nodes, inputs=[info("x", TensorProto.FLOAT, [1, 3, 24, 40]),
                                info("grid", TensorProto.FLOAT, [1, 24, 40, 2])],
                 initializers=[numpy_helper.from_array(np.ones((1,), np.float32), "one")])


def bare_nodes_of_ours(count: int = LONG // 2) -> onnx.ModelProto:
    """Side by side, each speaking for all of its name."""
    names = [f"t{k}" for k in range(count)]
    made = model([*(helper.make_node("Rot90", ["x"], [name], domain="custom.ops", k=1, axes=[2, 3], name=name)
                    for name in names), node("Sum", names, "y")])
    made.opset_import.append(helper.make_opsetid("custom.ops", 1))
    return made


def concat_of_everything(count: int = LONG) -> onnx.ModelProto:
    """One node with as many operands as a model has nodes, each piece of one Split."""
    pieces = [f"p{k}" for k in range(count)]
    wide = [info("x", TensorProto.FLOAT, [1, 1, 1, count])]
    return model([helper.make_node("Split", ["x"], pieces, axis=3, num_outputs=count),
                  helper.make_node("Concat", pieces[::-1], ["flipped"], axis=3),
                  node("Transpose", ["flipped"], "y", perm=[0, 1, 3, 2])], inputs=wide)


KINDS = [function_laughs, function_laughs_wide, function_calls_itself, functions_call_each_other,
         function_calls_itself_in_a_body, function_bears_the_name_of_ours_and_calls_itself, long_chain_of_functions,
         nested_ifs, transposes, turns, turns_that_all_are_outputs, turns_that_all_are_read,
         turns_and_maps, transposes_and_maps, maps_behind_a_turn, factors_behind_turns, shapes_of_every_step,
         arithmetic_on_sizes, sums_of_grids, many_samplers_of_one_slice, bare_nodes_of_ours, concat_of_everything]
