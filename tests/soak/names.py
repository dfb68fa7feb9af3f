"""Names of values and of dims."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx


def rename(graph: onnx.GraphProto, new: Callable[[str], str]) -> None:
    """Rename every value of a graph and its bodies, in place; the empty name, of what is not there, stays."""
    for values in (graph.input, graph.output, graph.value_info, graph.initializer):
        for value in values:
            value.name = new(value.name)
    for annotation in graph.quantization_annotation:
        annotation.tensor_name = new(annotation.tensor_name)
    rename_in_nodes(graph.node, new)


def rename_in_nodes(nodes, new: Callable[[str], str]) -> None:
    """The same for what nodes take and make."""
    for node in nodes:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name:
                    names[index] = new(name)
        for attribute in node.attribute:
            for graph in bodies(attribute):
                rename(graph, new)


def rename_dims(graph: onnx.GraphProto, new: Callable[[str], str]) -> None:
    """Rename the symbols of dims of a graph and its bodies, in place: one symbol is one size in all of a model."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = new(dim.dim_param)
    for node in graph.node:
        for attribute in node.attribute:
            for body in bodies(attribute):
                rename_dims(body, new)


def bodies(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that an attribute holds."""
    if attribute.type == onnx.AttributeProto.GRAPH:
        yield attribute.g
    yield from attribute.graphs


def reads(node: onnx.NodeProto) -> set[str]:
    """What a node takes, its bodies included, values that they make themselves too."""
    taken = set(node.input)
    for attribute in node.attribute:
        for graph in bodies(attribute):
            taken.update(value.name for value in graph.output)
            for inner in graph.node:
                taken |= reads(inner)
    return taken
