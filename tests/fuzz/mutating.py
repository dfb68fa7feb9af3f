"""Mutations that know what a model is made of: random bytes rarely get past protobuf, and never past the checker."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

import numpy as np
import onnx
from google.protobuf.message import Message

NUMBERS = (-(2 ** 63), -(2 ** 31), -2, -1, 0, 1, 2, 3, 4, 7, 100, 2 ** 16, 2 ** 31 - 1, 2 ** 31, 2 ** 62, 2 ** 63 - 1)
FLOATS = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 3e38)
STRINGS = (b"", b"\x1b[2J", b"\xff\xfe", b"linear", b"bilinear", b"nearest", b"zeros", b"../x", "‮x".encode(), b"\x00")
DOMAINS = ("", "ai.onnx", "custom.ops", "org.pytorch.aten", "warpfuse", "x")
HOW_MANY = (1, 1, 1, 1, 2, 2, 3, 5)


def mutate(data: bytes, seed: int) -> bytes:
    """A mutated model, or mutated bytes where they parse as none."""
    rng = random.Random(seed)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:
        return _bytes(data, rng)
    if not model.graph.node or rng.random() < 0.05:
        return _bytes(data, rng)
    for _ in range(rng.choice(HOW_MANY)):
        graph = rng.choice(list(_graphs(model)))
        with contextlib.suppress(Exception):  # numbers out of range, names that are no text
            rng.choice(MUTATIONS)(model, graph, rng)
    return model.SerializeToString()


def _bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data or b"\x08\x08")
    kind = rng.randrange(4)
    if kind == 0:
        return bytes(changed[:rng.randrange(len(changed) + 1)])
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(changed))
        if kind == 1:
            changed[place] ^= 1 << rng.randrange(8)
        elif kind == 2:
            changed[place] = rng.randrange(256)
        else:
            changed[place:place] = changed[rng.randrange(len(changed)):][:rng.randint(1, 16)]
    return bytes(changed)


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    pending: list = [model.graph, *model.functions]
    while pending:
        graph = pending.pop()
        if graph.node:
            yield graph
        pending.extend(a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)


def _node(graph, rng: random.Random) -> onnx.NodeProto:
    return graph.node[rng.randrange(len(graph.node))]


def _names(graph) -> list[str]:
    values = [name for node in graph.node for name in node.output]
    if isinstance(graph, onnx.GraphProto):
        values += [value.name for value in (*graph.input, *graph.initializer)]
    return values or [""]


def _rewire(model, graph, rng) -> None:
    node = _node(graph, rng)
    names = node.input if rng.random() < 0.8 else node.output
    if names:
        names[rng.randrange(len(names))] = rng.choice([*_names(graph), ""])


def _fewer_or_more(model, graph, rng) -> None:
    names = rng.choice([_node(graph, rng).input, _node(graph, rng).output])
    if names and rng.random() < 0.5:
        names.pop()
    else:
        names.append(rng.choice([*_names(graph), "new", ""]))


def _retype(model, graph, rng) -> None:
    node, other = _node(graph, rng), _node(graph, rng)
    node.op_type, node.domain = other.op_type, rng.choice((other.domain, *DOMAINS))


def _drop_node(model, graph, rng) -> None:
    del graph.node[rng.randrange(len(graph.node))]
    if not graph.node:
        graph.node.add(op_type="Identity", input=["x"], output=["y"])


def _repeat_node(model, graph, rng) -> None:
    copy = onnx.NodeProto.FromString(_node(graph, rng).SerializeToString())
    if rng.random() < 0.7:
        for index in range(len(copy.output)):
            copy.output[index] += "_"
    graph.node.append(copy)


def _swap_nodes(model, graph, rng) -> None:
    one, other = rng.randrange(len(graph.node)), rng.randrange(len(graph.node))
    copy = graph.node[one].SerializeToString()
    graph.node[one].CopyFrom(graph.node[other])
    graph.node[other].ParseFromString(copy)


def _attribute(model, graph, rng) -> None:
    attributes = _node(graph, rng).attribute
    if not attributes:
        return
    index = rng.randrange(len(attributes))
    attribute = attributes[index]
    if rng.random() < 0.15:
        del attributes[index]
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = rng.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = rng.choice(FLOATS)
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = rng.choice(STRINGS)
    elif attribute.type == onnx.AttributeProto.INTS:
        _numbers(attribute.ints, rng)
    elif attribute.type == onnx.AttributeProto.TENSOR:
        _in_tensor(attribute.t, rng)


def _numbers(numbers, rng) -> None:
    if numbers and rng.random() < 0.7:
        numbers[rng.randrange(len(numbers))] = rng.choice(NUMBERS)
    elif numbers and rng.random() < 0.5:
        numbers.pop()
    else:
        numbers.append(rng.choice(NUMBERS))


def _tensor(model, graph, rng) -> None:
    if isinstance(graph, onnx.GraphProto) and graph.initializer:
        _in_tensor(graph.initializer[rng.randrange(len(graph.initializer))], rng)


def _in_tensor(tensor: onnx.TensorProto, rng: random.Random) -> None:
    kind = rng.randrange(6)
    if kind == 0:
        tensor.data_type = rng.randrange(25)
    elif kind == 1:
        _numbers(tensor.dims, rng)
    elif kind == 2 and tensor.raw_data:
        tensor.raw_data = tensor.raw_data[:rng.randrange(len(tensor.raw_data))]
    elif kind == 3:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=rng.choice(("x", "/dev/zero", "../x", "")))
    elif tensor.raw_data:  # one element, or one bit
        data, place = bytearray(tensor.raw_data), rng.randrange(len(tensor.raw_data))
        data[place] ^= 1 << rng.randrange(8)
        tensor.raw_data = bytes(data)


def tensors(graph) -> list[onnx.TensorProto]:
    """Weights and constants, not those in bodies."""
    constants = [a.t for node in graph.node if node.op_type == "Constant" for a in node.attribute
                 if a.type == onnx.AttributeProto.TENSOR]
    return [*getattr(graph, "initializer", ()), *constants]


def other_ranks(array: np.ndarray) -> list[np.ndarray]:
    """The same numbers as an operator does not want them."""
    flat = array.reshape(-1)
    return [array[..., None], array[None], flat[:1].reshape(()) if flat.size else flat, flat[:0],
            np.concatenate([flat, flat]), array.astype(np.int64 if array.dtype.kind == "f" else np.float32)]


def _rank(model, graph, rng) -> None:
    """A tensor that is valid, of another shape or type."""
    tensor = rng.choice(tensors(graph))
    changed = rng.choice(other_ranks(onnx.numpy_helper.to_array(tensor)))
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(changed), tensor.name))


def _type(model, graph, rng) -> None:
    if isinstance(graph, onnx.GraphProto):
        values = [*graph.input, *graph.output, *graph.value_info]
        if values:
            kind = rng.choice(values).type.tensor_type
            if kind.shape.dim and rng.random() < 0.7:
                dim = rng.choice(kind.shape.dim)
                if rng.random() < 0.5:
                    dim.dim_value = rng.choice(NUMBERS)
                else:
                    dim.dim_param = rng.choice(("n", "h", ""))
            else:
                kind.elem_type = rng.randrange(25)


def _version(model, graph, rng) -> None:
    if rng.random() < 0.3:
        model.ir_version = rng.choice((0, 3, 7, 8, 10, 99))
    elif model.opset_import:
        entry = rng.choice(model.opset_import)
        entry.version = rng.choice((1, 7, 9, 11, 13, 16, 18, 20, 22, 26, 2 ** 40))


def _text(model, graph, rng) -> None:
    text = rng.choice(STRINGS).decode(errors="replace")
    node = _node(graph, rng)
    if rng.random() < 0.5:
        node.name = text
    else:
        node.doc_string = text


def _deeper(model, graph, rng) -> None:
    """A node in the branch of an If."""
    copy = onnx.NodeProto.FromString(_node(graph, rng).SerializeToString())
    if not copy.output:
        return
    branch = onnx.helper.make_graph([copy], "branch", [], [onnx.ValueInfoProto(name=copy.output[0])])
    graph.node.append(onnx.helper.make_node("If", [rng.choice(_names(graph))], ["branched"], then_branch=branch,
                                            else_branch=branch))


MUTATIONS: tuple[Callable[[onnx.ModelProto, Message, random.Random], None], ...] = (
    _rewire, _rewire, _fewer_or_more, _retype, _drop_node, _repeat_node, _swap_nodes, _attribute, _attribute,
    _attribute, _tensor, _tensor, _tensor, _type, _type, _version, _text, _deeper, _rank)
