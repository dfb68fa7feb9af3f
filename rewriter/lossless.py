"""ModelProto to onnx_ir and back, with what onnx_ir has no place for.

Measured with onnx_ir 0.1 and 1.1: training_info, sparse initializers and keys of external data such as `checksum` are
dropped; metadata of initializers is written twice; initializers gain a value_info. All of it is put right here, so
that a model differs from what came in only where something was rewritten.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir

_SPARSE = "onnx-warpfuse sparse initializer "  # doc string of the graph input that stands in for one
_KNOWN_KEYS = {"location", "offset", "length"}


@dataclasses.dataclass
class Kept:
    """What onnx_ir does not carry.

    Attributes:
        training: `training_info` of the model.
        sparse: sparse initializers; graph inputs of their names stand in for them, so nothing takes them for constants.
        external: (location, offset, length) of external tensors with further keys -> all their entries.
        described: names with a value_info, over all graphs.
    """

    training: list = dataclasses.field(default_factory=list)
    sparse: list[onnx.SparseTensorProto] = dataclasses.field(default_factory=list)
    external: dict[tuple, list] = dataclasses.field(default_factory=dict)
    described: set[str] = dataclasses.field(default_factory=set)


def read(proto: onnx.ModelProto) -> tuple[ir.Model, Kept]:
    """The onnx_ir model of a proto, to which the model's tensors refer: naming one of them changes the proto."""
    kept = Kept(training=list(proto.training_info))
    if any(graph.sparse_initializer for graph in graphs(proto)):
        proto = _with_stand_ins(proto, kept)
    for graph in graphs(proto):
        kept.described.update(value.name for value in graph.value_info)
        for tensor in _tensors(graph):
            entries = {entry.key: entry.value for entry in tensor.external_data}
            if entries.keys() - _KNOWN_KEYS:
                kept.external[_range(entries)] = list(tensor.external_data)
    return ir.serde.deserialize_model(proto), kept


def write(model: ir.Model, kept: Kept) -> onnx.ModelProto:
    """The proto of a model, with what was kept put back."""
    proto = ir.serde.serialize_model(model)
    proto.training_info.extend(kept.training)
    for graph in graphs(proto):
        if kept.sparse:
            _restore_sparse(graph, kept)
        own = {tensor.name for tensor in graph.initializer} - kept.described
        if any(value.name in own for value in graph.value_info):
            _replace(graph.value_info, [value for value in graph.value_info if value.name not in own])
        for tensor in graph.initializer:
            unique = {(entry.key, entry.value): entry for entry in tensor.metadata_props}
            if len(unique) < len(tensor.metadata_props):
                _replace(tensor.metadata_props, unique.values())
        if kept.external:
            for tensor in _tensors(graph):
                entries = {entry.key: entry.value for entry in tensor.external_data}
                if _range(entries) in kept.external:
                    _replace(tensor.external_data, kept.external[_range(entries)])
    return proto


def graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Every graph of a model: the main one, then bodies of control flow, those in functions included."""
    yield proto.graph
    pending = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    while pending:
        for attribute in pending.pop().attribute:
            for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                yield graph
                pending.extend(graph.node)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _range(entries: dict[str, str]) -> tuple:
    return entries.get("location"), entries.get("offset"), entries.get("length")


def _replace(field, items: Iterable) -> None:
    """Make a repeated field hold `items`, which may be its own."""
    copies = [type(item).FromString(item.SerializeToString()) for item in items]
    del field[:]
    field.extend(copies)


def _with_stand_ins(proto: onnx.ModelProto, kept: Kept) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for graph in graphs(copy):
        for sparse in graph.sparse_initializer:
            value = onnx.helper.make_tensor_value_info(sparse.values.name, sparse.values.data_type, sparse.dims)
            value.doc_string = f"{_SPARSE}{len(kept.sparse)}"
            kept.sparse.append(sparse)
            graph.input.append(value)
    return copy


def _restore_sparse(graph: onnx.GraphProto, kept: Kept) -> None:
    stand_ins = [value for value in graph.input if value.doc_string.startswith(_SPARSE)]
    for value in stand_ins:
        graph.sparse_initializer.add().CopyFrom(kept.sparse[int(value.doc_string[len(_SPARSE):])])
    if stand_ins:
        _replace(graph.input, [value for value in graph.input if not value.doc_string.startswith(_SPARSE)])
