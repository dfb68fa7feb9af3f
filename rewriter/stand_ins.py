"""What onnx_ir refuses or drops, and what is fused with nothing, is hidden from it before a model is read.

Each is replaced by something that onnx_ir takes and from which nothing can be proven. `rewriter.lossless` puts the
originals back: it only does to a model what differs from one that had the same stand-ins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

HIDDEN = "onnx-warpfuse.hidden"  # domain of nodes that say what cannot be read: no operator of theirs is known


def put(proto: onnx.ModelProto) -> None:
    """Put stand-ins into a model, the same ones every time.

    - sparse initializers, and those with fields that are unknown here: graph inputs of their names
    - types that onnx_ir does not know (maps, opaque types, new element types): none
    - attributes that it does not read (sparse tensors, such types, text that is no UTF-8): an empty string
    - nodes with fields unknown here, or placed on devices: a domain that nobody knows
    """
    for graph in graphs(proto):
        _hide_initializers(graph)
        _hide_types((*graph.input, *graph.output, *graph.value_info))
        _hide_in_nodes(graph.node)
    for function in proto.functions:
        _hide_types(function.value_info)
        _hide_in_nodes(function.node)
        _hide_attributes(function.attribute_proto)


def graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Every graph of a model: the main one, then bodies of control flow, those in functions included."""
    yield proto.graph
    pending = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    while pending:
        for attribute in pending.pop().attribute:
            for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                yield graph
                pending.extend(graph.node)


def _hide_initializers(graph: onnx.GraphProto) -> None:
    taken = {value.name for value in graph.input}
    hidden = [(sparse.values.name, sparse.values.data_type, sparse.dims) for sparse in graph.sparse_initializer]
    for index in reversed(range(len(graph.initializer))):
        tensor = graph.initializer[index]
        if _is_strange(tensor) or not _is_element(tensor.data_type):
            hidden.append((tensor.name, tensor.data_type, list(tensor.dims)))
            del graph.initializer[index]
    graph.input.extend(onnx.helper.make_tensor_value_info(*entry) for entry in hidden if entry[0] not in taken)


def _hide_types(values: Iterable[onnx.ValueInfoProto]) -> None:
    for value in values:
        if value.HasField("type") and not _is_readable(value.type):
            value.ClearField("type")


def _hide_in_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        strange = _is_strange(node) or any(map(_is_strange_attribute, node.attribute))
        if _hide_attributes(node.attribute) or strange or getattr(node, "device_configurations", ()):
            node.domain = HIDDEN


def _hide_attributes(attributes: Iterable[onnx.AttributeProto]) -> bool:
    """Replace those that onnx_ir does not read; whether there were any."""
    hidden = [a for a in attributes if not a.ref_attr_name and not _is_readable_attribute(a)]
    for attribute in hidden:
        name = attribute.name
        attribute.Clear()
        attribute.name, attribute.type = name, onnx.AttributeProto.STRING
    return bool(hidden)


def _is_readable_attribute(attribute: onnx.AttributeProto) -> bool:
    kind = onnx.AttributeProto
    if attribute.type in (kind.UNDEFINED, kind.SPARSE_TENSOR, kind.SPARSE_TENSORS):
        return False
    if attribute.type in (kind.TYPE_PROTO, kind.TYPE_PROTOS):
        return all(map(_is_readable, (attribute.tp, *attribute.type_protos)))
    try:
        for text in (attribute.s, *attribute.strings):
            text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_readable(kind: onnx.TypeProto) -> bool:
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        return _is_element(getattr(kind, which).elem_type)
    if which in ("sequence_type", "optional_type"):
        inner = getattr(kind, which).elem_type
        return inner.WhichOneof("value") is not None and _is_readable(inner)
    return which is None


def _is_element(kind: int) -> bool:
    try:
        ir.DataType(kind)
    except ValueError:
        return False
    return True


def _is_strange(message: Message) -> bool:
    """Whether it has fields that this version of ONNX does not know."""
    return len(UnknownFieldSet(message)) > 0


def _is_strange_attribute(attribute: onnx.AttributeProto) -> bool:
    """The same for an attribute, its tensors and its graphs; what lies in the graphs is looked at by itself."""
    return any(map(_is_strange, (attribute, *((attribute.t,) if attribute.HasField("t") else ()), *attribute.tensors,
                                 *((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs)))
