"""Other ways to write the same model: none changes what it computes, but for rounding."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper
from soak.compose import Composed
from soak.names import bodies, reads, rename, rename_in_nodes
from soak.tools import rewritten

from rewriter.workers import WorkerError

FLOATS = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16, TensorProto.DOUBLE: np.float64}
NEWEST = 22
LETTERS = ("v", "x/y", "a:0", "näme", "0", "-", "If", "custom.ops", "size", "theta")


def graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The graph and every body below it."""
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph
        pending.extend(body for node in graph.node for attribute in node.attribute for body in bodies(attribute))


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those of bodies and of functions included."""
    pending = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(inner for attribute in node.attribute for body in bodies(attribute) for inner in body.node)


def renamed(made: Composed, rng: random.Random) -> None:
    """Every value gets a name without a meaning, nodes get others or none."""
    names: dict[str, str] = {}

    def new(name: str) -> str:
        return names.setdefault(name, f"{rng.choice(LETTERS)}{len(names)}")

    rename(made.model.graph, new)
    for graph in graphs(made.model):
        for index, node in enumerate(graph.node):
            node.name = "" if rng.random() < 0.5 else f"n{index}"
    made.feeds = {names[name]: array for name, array in made.feeds.items()}
    made.shapes = {names[name]: shape for name, shape in made.shapes.items()}


def reordered(made: Composed, rng: random.Random) -> None:
    """Nodes in another topological order."""
    for graph in graphs(made.model):
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
        makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
        waiting = {index: {makers[name] for name in reads(node) if name in makers} - {index}
                   for index, node in enumerate(nodes)}
        order = []
        while waiting:
            ready = [index for index, needed in waiting.items() if not needed]
            order.append(rng.choice(ready))
            del waiting[order[-1]]
            for needed in waiting.values():
                needed.discard(order[-1])
        del graph.node[:]
        graph.node.extend(nodes[index] for index in order)


def constants_as_nodes(made: Composed, rng: random.Random) -> None:
    """Some initializers become Constant nodes."""
    for graph in graphs(made.model):
        moved = [tensor for tensor in graph.initializer if rng.random() < 0.5]
        nodes = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in moved]
        kept = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in graph.initializer
                if tensor.name not in {tensor.name for tensor in moved}]
        rest = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
        del graph.initializer[:], graph.node[:]
        graph.initializer.extend(kept)
        graph.node.extend([*nodes, *rest])


def constants_as_initializers(made: Composed, rng: random.Random) -> None:
    """Some Constant nodes become initializers."""
    for graph in graphs(made.model):
        kept = []
        for node in graph.node:
            value = node.attribute[0] if node.op_type == "Constant" and len(node.attribute) == 1 else None
            if value is not None and value.name == "value" and rng.random() < 0.7:
                tensor = onnx.TensorProto.FromString(value.t.SerializeToString())
                tensor.name = node.output[0]
                graph.initializer.append(tensor)
            else:
                kept.append(onnx.NodeProto.FromString(node.SerializeToString()))
        del graph.node[:]
        graph.node.extend(kept)


def mixed_types(made: Composed, rng: random.Random) -> None:
    """Some floating inputs come in another type and are cast; some outputs leave as float64."""
    graph = made.model.graph
    for value in graph.input:
        kind = value.type.tensor_type.elem_type
        if kind not in FLOATS or rng.random() < 0.5:
            continue
        outer = rng.choice([other for other in FLOATS if other != kind])
        inner = f"{value.name}.cast"
        rename_in_nodes(graph.node, lambda name, old=value.name, new=inner: new if name == old else name)
        graph.node.insert(0, helper.make_node("Cast", [value.name], [inner], to=kind))
        value.type.tensor_type.elem_type = outer
        made.feeds[value.name] = made.feeds[value.name].astype(FLOATS[outer])
    for value in graph.output:
        if value.type.tensor_type.elem_type in FLOATS and rng.random() < 0.2:
            inner = value.name
            value.name = f"{inner}.wide"
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
            graph.node.append(helper.make_node("Cast", [inner], [value.name], to=TensorProto.DOUBLE))
            made.shapes[value.name] = made.shapes.pop(inner)


def opened(made: Composed, rng: random.Random) -> None:
    """Inputs of unknown size, and nothing said about the values between."""
    for index, value in enumerate(made.model.graph.input):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if rng.random() < 0.6:
                dim.dim_param = f"d{index}_{axis}"
    for value in made.model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    for graph in graphs(made.model):
        del graph.value_info[:]


def seen_between(made: Composed, rng: random.Random) -> None:
    """Some values between become outputs as well."""
    graph = made.model.graph
    known = {value.name: value for value in onnx.shape_inference.infer_shapes(made.model).graph.value_info}
    made_here = {name for node in graph.node for name in node.output}
    names = sorted(name for name in made_here & known.keys() if known[name].type.tensor_type.elem_type in FLOATS
                   and known[name].type.tensor_type.HasField("shape"))
    for name in rng.sample(names, min(len(names), rng.randint(1, 2))):
        kind = known[name].type.tensor_type
        graph.output.append(helper.make_tensor_value_info(name, kind.elem_type, [None] * len(kind.shape.dim)))
        made.shapes[name] = ()


def identities(made: Composed, rng: random.Random) -> None:
    """Identity nodes on some edges."""
    for graph in graphs(made.model):
        nodes = []
        for index, node in enumerate(graph.node):
            copy = onnx.NodeProto.FromString(node.SerializeToString())
            for place, name in enumerate(copy.input):
                if name and rng.random() < 0.1:
                    copy.input[place] = f"{name}.{index}.{place}"
                    nodes.append(helper.make_node("Identity", [name], [copy.input[place]]))
            nodes.append(copy)
        del graph.node[:]
        graph.node.extend(nodes)


def other_inputs(made: Composed, rng: random.Random) -> None:
    """Other values than those recorded: noise on what is floating."""
    generator = np.random.default_rng(rng.getrandbits(32))
    for name, array in made.feeds.items():
        if array.dtype.kind == "f":
            made.feeds[name] = (array + 0.2 * generator.standard_normal(array.shape)).astype(array.dtype)


def other_opset(made: Composed, rng: random.Random) -> None:
    """Converted to a newer opset by onnx."""
    version = made.model.opset_import[0].version
    if made.model.functions or version >= NEWEST:  # the converter does not look into functions
        return
    made.model = rewritten(made.model, "convert", rng.randint(version + 1, NEWEST))


def by_onnxsim(made: Composed, rng: random.Random) -> None:
    """Simplified by onnxsim."""
    made.model = rewritten(made.model, "onnxsim")


def by_onnxslim(made: Composed, rng: random.Random) -> None:
    """Slimmed by onnxslim."""
    made.model = rewritten(made.model, "onnxslim")


def by_onnxruntime(made: Composed, rng: random.Random) -> None:
    """ONNX Runtime's basic optimizations."""
    made.model = rewritten(made.model, "onnxruntime")


TOOLS: tuple[Callable[[Composed, random.Random], None], ...] = (by_onnxsim, by_onnxslim, by_onnxruntime, other_opset)
# in this order, each with its chance
MUTATIONS: tuple[tuple[Callable[[Composed, random.Random], None], float], ...] = (
    (other_inputs, 0.5), (mixed_types, 0.25), (identities, 0.15), (constants_as_nodes, 0.3),
    (constants_as_initializers, 0.3), (seen_between, 0.2), (opened, 0.2), (renamed, 0.4), (reordered, 0.4))
TOOL_CHANCE = 0.12


def mutate(made: Composed, rng: random.Random) -> None:
    """Draw and apply mutations; a tool that cannot take the model leaves it as it was."""
    if rng.random() < TOOL_CHANCE:
        tool = rng.choice(TOOLS)
        try:
            tool(made, rng)
            made.story.append(tool.__name__)
        except WorkerError as error:
            made.story.append(f"{tool.__name__} failed: {error.kind or error}")
    for mutation, chance in MUTATIONS:
        if rng.random() < chance:
            mutation(made, rng)
            made.story.append(mutation.__name__)
