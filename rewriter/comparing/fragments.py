"""What differs between two models: the nodes that went, the nodes that came, and which belong together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import onnx

from rewriter.comparing.report import Fragment, Piece

DOMAIN = "custom.ops"


@dataclasses.dataclass(frozen=True)
class Place:
    """A node, its position in `walk`, and the graph it lies in."""

    position: int
    graph: str
    node: onnx.NodeProto


def walk(model: onnx.ModelProto) -> Iterator[Place]:
    """Every node of the model's graphs, nested ones after their node, in an order that depends on nothing else."""
    def of(graph: onnx.GraphProto, path: str) -> Iterator[tuple[str, onnx.NodeProto]]:
        for node in graph.node:
            yield path, node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    first = next(iter(node.output), "")
                    yield from of(attribute.g, f"{path}/{node.op_type} {first}.{attribute.name}")

    for position, (path, node) in enumerate(of(model.graph, "graph")):
        yield Place(position, path, node)


def changes(unfused: onnx.ModelProto, fused: onnx.ModelProto) -> tuple[list[Place], list[Place]]:
    """The nodes only the one has and the nodes only the other has, constants apart.

    A node is the same if it does the same to get values of the same names; its inputs may be called otherwise.
    """
    before, after = ([place for place in walk(model) if place.node.op_type != "Constant"]
                     for model in (unfused, fused))
    old, new = ({_identity(place) for place in places} for places in (before, after))
    return ([place for place in before if _identity(place) not in new],
            [place for place in after if _identity(place) not in old])


def fragments(unfused: onnx.ModelProto, fused: onnx.ModelProto) -> list[Fragment]:
    """The subgraphs that were replaced, those of the same form counted together; the largest first."""
    gone, come = changes(unfused, fused)
    sizes = (_constants(unfused), _constants(fused))
    found: dict[tuple, Fragment] = {}
    for before, after in _together(gone, come):
        pieces = tuple(_pieces(places, size) for places, size in zip((before, after), sizes))
        if pieces in found:
            found[pieces] = dataclasses.replace(found[pieces], count=found[pieces].count + 1)
        else:
            last = (after or before)[-1]
            found[pieces] = Fragment(*pieces, where=last.node.name or next(iter(last.node.output), ""))
    return sorted(found.values(), key=lambda fragment: -len(fragment.before))


def _identity(place: Place) -> tuple:
    attributes = tuple(sorted(attribute.name.encode() if attribute.HasField("g") else
                              attribute.SerializeToString(deterministic=True) for attribute in place.node.attribute))
    return place.graph, place.node.domain, place.node.op_type, tuple(place.node.output), attributes


def _together(gone: list[Place], come: list[Place]) -> list[tuple[list[Place], list[Place]]]:
    """Nodes of both sides that are connected by values which a node of either side makes."""
    parents: dict[tuple, tuple] = {}

    def root(key: tuple) -> tuple:
        while parents.setdefault(key, key) != key:
            key = parents[key]
        return key

    made = {(place.graph, name) for place in (*gone, *come) for name in place.node.output if name}
    for side, places in enumerate((gone, come)):
        for place in places:
            for name in (*place.node.input, *place.node.output):
                if (place.graph, name) in made:
                    parents[root((place.graph, name))] = root((side, place.position))
    groups: dict[tuple, tuple[list[Place], list[Place]]] = {}
    for side, places in enumerate((gone, come)):
        for place in places:
            groups.setdefault(root((side, place.position)), ([], []))[side].append(place)
    return list(groups.values())


def _constants(model: onnx.ModelProto) -> dict[str, int]:
    """Bytes of the main graph's constants by name."""
    sizes = {tensor.name: _bytes(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            sizes[node.output[0]] = sum(_bytes(attribute.t) for attribute in node.attribute if attribute.HasField("t"))
    return sizes


def _bytes(tensor: onnx.TensorProto) -> int:
    try:
        width = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except KeyError:
        return 0
    return math.prod(tensor.dims) * width


def _pieces(places: list[Place], sizes: dict[str, int]) -> tuple[Piece, ...]:
    makers = {name: index for index, place in enumerate(places) for name in place.node.output if name}
    return tuple(
        Piece(place.node.op_type, place.node.domain == DOMAIN,
              tuple(dict.fromkeys(makers[name] for name in place.node.input if makers.get(name, index) < index)),
              sum(sizes.get(name, 0) for name in place.node.input) if place.graph == "graph" else 0)
        for index, place in enumerate(places))
