"""ModelProto to onnx_ir and back, with what onnx_ir has no place for.

Measured with onnx_ir 0.1 and 1.1: training_info, sparse initializers, keys of external data such as `checksum`, fields
of newer versions of ONNX, empty outputs at a node's end and value_info of nothing but a name are dropped; metadata and
value_info are put in another order; initializers gain a value_info and have their metadata twice; map types, sparse
attributes and text that is no UTF-8 are refused. Instead of mending each, onnx_ir's rendering of the untouched model is
compared with that of the rewritten one, and what differs is done to the model that came in (`rewriter.merging`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable

import onnx
import onnx_ir as ir

from rewriter import stand_ins
from rewriter.checking import declared_size
from rewriter.merging import merge

LIGHT = 1 << 10  # bytes; larger weights of the main graph are compared by identity and never copied


@dataclasses.dataclass
class Kept:
    """What it takes to lose nothing.

    Attributes:
        source: makes a copy of the model as it came in; None where it came as an onnx_ir model.
        weights: larger initializers of the main graph -> their tensors.
    """

    source: Callable[[], onnx.ModelProto] | None = None
    weights: dict[str, ir.TensorProtocol] = dataclasses.field(default_factory=dict)


def read(proto: onnx.ModelProto, source: Callable[[], onnx.ModelProto] | None = None) -> tuple[ir.Model, Kept]:
    """The onnx_ir model of a proto.

    Args:
        proto: the model. The tensors refer to it and it is written to if `source` is given, else to a copy.
        source: makes a copy of it as it came in.
    """
    if source is None:
        source = functools.partial(copy_of, proto)
        proto = source()
    stand_ins.put(proto)
    model = ir.serde.deserialize_model(proto)
    heavy = {tensor.name for tensor in proto.graph.initializer if _is_heavy(tensor)}
    return model, Kept(source, {name: value.const_value for name, value in model.graph.initializers.items()
                                if name in heavy})


def write(model: ir.Model, kept: Kept) -> onnx.ModelProto:
    """The proto of a model: what came in, with what was rewritten."""
    if kept.source is None:
        return ir.serde.serialize_model(model)
    result = kept.source()
    merge(result, _echo(result, kept), _serialize(model, kept))
    return result


def _echo(source: onnx.ModelProto, kept: Kept) -> onnx.ModelProto:
    """What onnx_ir makes of the model that came in, its larger weights replaced by stubs."""
    lean = onnx.ModelProto()
    _copy_fields(source, lean, "graph")
    lean.graph.SetInParent()
    _copy_fields(source.graph, lean.graph, "initializer")
    for tensor in source.graph.initializer:
        known = tensor.name in kept.weights and _is_heavy(tensor)
        lean.graph.initializer.append(_stub(tensor.name, tensor.data_type, tensor.dims) if known else tensor)
    stand_ins.put(lean)
    return ir.serde.serialize_model(ir.serde.deserialize_model(lean))


def _serialize(model: ir.Model, kept: Kept) -> onnx.ModelProto:
    """The same of the model as it stands: weights that are still those that came in are stubs."""
    same = [value for name, value in model.graph.initializers.items()
            if name in kept.weights and value.const_value is kept.weights[name]]
    try:
        for value in same:
            tensor = value.const_value
            value.const_value = ir.serde.TensorProtoTensor(_stub(value.name, tensor.dtype, tensor.shape))
        return ir.serde.serialize_model(model)
    finally:
        for value in same:
            value.const_value = kept.weights[value.name]


def _stub(name: str, dtype: int, dims: Iterable[int]) -> onnx.TensorProto:
    return onnx.TensorProto(name=name, data_type=int(dtype), dims=map(int, dims))


def _is_heavy(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location != onnx.TensorProto.EXTERNAL and declared_size(tensor) > LIGHT


def copy_of(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model, data and all."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def _copy_fields(source, target, but: str) -> None:
    for field, value in source.ListFields():
        if field.name == but:
            continue
        if hasattr(value, "extend"):
            getattr(target, field.name).extend(value)
        elif field.message_type is not None:
            getattr(target, field.name).CopyFrom(value)
        else:
            setattr(target, field.name, value)
