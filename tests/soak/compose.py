"""One model out of several: beside each other, one behind the other, in bodies of control flow and in functions.

Everything is drawn from one generator, so that a seed is a model.
"""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from soak.names import rename, rename_dims
from soak.parts import Part

DOMAIN = "soak"  # of model-local functions
TURNS = 2  # of a Loop


@dataclasses.dataclass
class Composed:
    """A model in the making.

    Attributes:
        model: so far.
        feeds: inputs by name.
        shapes: of the outputs, by name.
        story: what was done, for people.
    """

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    shapes: dict[str, tuple[int, ...]]
    story: list[str]


def compose(parts: list[Part], rng: random.Random) -> Composed:
    """Put parts of one opset into one model."""
    model = onnx.ModelProto(ir_version=max(8, *(part.model.ir_version for part in parts)))
    model.opset_import.add(domain="", version=parts[0].opset)
    model.graph.name = "soak"
    made = Composed(model, {}, {}, [])
    for index, part in enumerate(parts):
        place = rng.choices([_beside, _in_if, _in_loop, _in_function], [6, 2, 1, 1])[0]
        made.story.append(f"{part.name} {place.__name__.strip('_')}")
        graph = onnx.GraphProto()
        graph.CopyFrom(part.model.graph)
        rename(graph, lambda name, index=index: f"p{index}.{name}")
        rename_dims(graph, lambda name, index=index: f"p{index}.{name}")
        for node in graph.node:
            node.name = node.name and f"p{index}.{node.name}"
        _take_inputs(made, graph, {f"p{index}.{name}": array for name, array in part.feeds.items()}, rng)
        shapes = {f"p{index}.{name}": shape for name, shape in part.shapes.items()}
        place(made, graph, shapes, rng)
    if rng.random() < 0.5:
        _share_constants(made)
    return made


def _take_inputs(made: Composed, graph: onnx.GraphProto, feeds: dict[str, np.ndarray], rng: random.Random) -> None:
    """Give a part inputs of its own, or those of another part, or outputs of another part."""
    sources: dict[str, str] = {}
    for value in graph.input:
        array = feeds[value.name]
        same = [name for name, other in made.feeds.items() if other.dtype == array.dtype and other.shape == array.shape]
        kinds = {output.name: output.type.tensor_type.elem_type for output in made.model.graph.output}
        behind = [name for name, shape in made.shapes.items() if shape == array.shape
                  and kinds[name] == value.type.tensor_type.elem_type]
        if array.dtype.kind == "f" and behind and rng.random() < 0.7:
            sources[value.name] = rng.choice(behind)
            made.story.append(f"  {value.name} from {sources[value.name]}")
        elif same and rng.random() < 0.5:
            sources[value.name] = rng.choice(same)
            if array.dtype.kind != "f" and not np.array_equal(made.feeds[sources[value.name]], array):
                del sources[value.name]  # sizes and indices must stay what they are
    for value in graph.input:
        if value.name not in sources:
            made.model.graph.input.append(value)
            made.feeds[value.name] = feeds[value.name]
    rename(graph, lambda name: sources.get(name, name))


def _beside(made: Composed, graph: onnx.GraphProto, shapes: dict[str, tuple[int, ...]], rng: random.Random) -> None:
    whole = made.model.graph
    whole.node.extend(graph.node)
    whole.initializer.extend(graph.initializer)
    whole.value_info.extend(graph.value_info)
    whole.output.extend(graph.output)
    made.shapes.update(shapes)


def _body(graph: onnx.GraphProto, suffix: str) -> onnx.GraphProto:
    """The part as a body without inputs: it takes them from around it."""
    body = onnx.GraphProto()
    body.CopyFrom(graph)
    outside = {value.name for value in graph.input}
    del body.input[:]
    rename(body, lambda name: name if name in outside else f"{name}{suffix}")
    body.name = f"body{suffix}"
    return body


def _in_if(made: Composed, graph: onnx.GraphProto, shapes: dict[str, tuple[int, ...]], rng: random.Random) -> None:
    condition = f"condition{len(made.model.graph.node)}"
    then, other = _body(graph, ".then"), _body(graph, ".else")
    for index, value in enumerate(other.output):  # the branches differ
        if value.type.tensor_type.elem_type in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE):
            other.node.append(helper.make_node("Neg", [value.name], [f"{value.name}.negated"]))
            other.output[index].name = f"{value.name}.negated"
    if rng.random() < 0.5:  # what is constant may lie outside of the bodies
        made.model.graph.initializer.extend(graph.initializer)
        for body, suffix in ((then, ".then"), (other, ".else")):
            constants = {f"{tensor.name}{suffix}": tensor.name for tensor in graph.initializer}
            del body.initializer[:]
            rename(body, lambda name, constants=constants: constants.get(name, name))
    made.model.graph.node.append(helper.make_node(
        "If", [condition], [value.name for value in graph.output], condition, then_branch=then, else_branch=other))
    chosen = np.array(rng.random() < 0.5)
    if rng.random() < 0.3:
        made.model.graph.initializer.append(numpy_helper.from_array(chosen, condition))
    else:
        made.model.graph.input.append(helper.make_tensor_value_info(condition, TensorProto.BOOL, []))
        made.feeds[condition] = chosen
    _add_outputs(made, graph, shapes)


def _in_loop(made: Composed, graph: onnx.GraphProto, shapes: dict[str, tuple[int, ...]], rng: random.Random) -> None:
    key = f"loop{len(made.model.graph.node)}"
    body = _body(graph, ".body")
    body.input.append(helper.make_tensor_value_info(f"{key}.turn", TensorProto.INT64, []))
    body.input.append(helper.make_tensor_value_info(f"{key}.go", TensorProto.BOOL, []))
    results = list(body.output)
    del body.output[:]
    body.node.append(helper.make_node("Identity", [f"{key}.go"], [f"{key}.on"]))
    body.output.append(helper.make_tensor_value_info(f"{key}.on", TensorProto.BOOL, []))
    body.output.extend(results)
    made.model.graph.initializer.append(numpy_helper.from_array(np.array(TURNS), f"{key}.turns"))
    made.model.graph.node.append(helper.make_node(
        "Loop", [f"{key}.turns", ""], [value.name for value in graph.output], key, body=body))
    _add_outputs(made, graph, {name: (TURNS, *shape) for name, shape in shapes.items()})


def _in_function(made: Composed, graph: onnx.GraphProto, shapes: dict[str, tuple[int, ...]],
                 rng: random.Random) -> None:
    name = f"Function{len(made.model.functions)}"
    constants = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in graph.initializer]
    made.model.functions.append(helper.make_function(
        DOMAIN, name, [value.name for value in graph.input], [value.name for value in graph.output],
        [*constants, *graph.node], [helper.make_opsetid("", made.model.opset_import[0].version)]))
    if not any(entry.domain == DOMAIN for entry in made.model.opset_import):
        made.model.opset_import.add(domain=DOMAIN, version=1)
    inputs, outputs = ([value.name for value in values] for values in (graph.input, graph.output))
    made.model.graph.node.append(helper.make_node(name, inputs, outputs, f"call{len(made.model.functions)}",
                                                  domain=DOMAIN))
    _add_outputs(made, graph, shapes)


def _add_outputs(made: Composed, graph: onnx.GraphProto, shapes: dict[str, tuple[int, ...]]) -> None:
    for value in graph.output:
        made.model.graph.output.append(helper.make_tensor_value_info(
            value.name, value.type.tensor_type.elem_type, [None] * len(shapes[value.name])))
    made.shapes.update(shapes)


def _share_constants(made: Composed) -> None:
    """Constants of equal content become one, as parts of one network share a base grid."""
    first: dict[tuple, str] = {}
    replaced: dict[str, str] = {}
    kept = []
    for tensor in made.model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        key = (tensor.data_type, array.shape, array.tobytes())
        if first.setdefault(key, tensor.name) == tensor.name:
            kept.append(tensor)
        else:
            replaced[tensor.name] = first[key]
    outputs = {value.name for value in made.model.graph.output}
    if not replaced or replaced.keys() & outputs:
        return
    copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
    del made.model.graph.initializer[:]
    made.model.graph.initializer.extend(copies)
    rename(made.model.graph, lambda name: replaced.get(name, name))
    made.story.append(f"{len(replaced)} constants shared")

