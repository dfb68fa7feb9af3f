"""What the plain onnx.checker says about a model, without ever serializing its weights to ask."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator

import onnx
import onnx_ir as ir
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from rewriter.external import initializers

LARGEST = 1 << 30  # bytes; models above are checked without their weights. Protobuf itself ends at 2 GiB.
LIGHT = 1 << 10  # bytes; tensors up to here always stay
STRANGERS = ("No opset import for domain", "No Op registered for")  # how complaints about unknown operators begin
_HOLDERS = frozenset({"ModelProto", "GraphProto", "FunctionProto", "NodeProto", "AttributeProto"})


def complaint(proto: onnx.ModelProto, data: bytes | None = None, *, largest: int = LARGEST,
              checked: bool = False) -> str | None:
    """What the checker has against `proto`, in one line, or None. `data` is its serialized form where there is one.

    Without `data`, a model of more than `largest` bytes is checked without its weights; with it too, if these were
    `checked` before. External tensors are left out always: the checker would look for their files in the working
    directory.
    """
    known = checked and data is not None and len(data) > largest
    if data is None and byte_size(proto) <= largest:
        data = proto.SerializeToString()
    if known or data is None or b"location" in data:  # the key of an external tensor's file name
        lean = onnx.ModelProto()
        _copy_lean(proto, lean, largest if data is not None and not known else LIGHT,
                   declared_size if known else onnx.TensorProto.ByteSize)
        data = lean.SerializeToString()
    try:
        onnx.checker.check_model(data)
    except Exception as error:  # not only ValidationError: some versions let the parser's RuntimeError through
        return " ".join(str(error).split())[:600]
    return None


def is_text(data: bytes) -> bool:
    """Whether all names and other text of a serialized model is UTF-8, as protobuf demands. Python's parser hands over
    what is not as bytes, on which whatever takes it for a str fails."""
    try:
        _strict_model().FromString(data)
    except DecodeError:
        return False
    return True


@functools.cache
def _strict_model() -> type[Message]:
    """ModelProto in the syntax proto3, whose parser looks at that."""
    file = descriptor_pb2.FileDescriptorProto()
    onnx.ModelProto.DESCRIPTOR.file.CopyToProto(file)
    file.syntax = "proto3"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(onnx.ModelProto.DESCRIPTOR.full_name))


def is_of_strangers(complaint: str) -> bool:
    """Whether the complaint is that a node's operator is unknown, or its domain not imported."""
    return complaint.startswith(STRANGERS)


def complaint_beyond_strangers(proto: onnx.ModelProto, anchors: Collection[str]) -> str | None:
    """What the checker has against the rest of a model that has nodes of unknown operators.

    Args:
        anchors: the operators that may be unknown, as patterns name them.
    """
    lean = onnx.ModelProto()
    _copy_lean(proto, lean, LIGHT, onnx.TensorProto.ByteSize)
    for holder, nodes in ((lean, lean.graph.node), *((function, function.node) for function in lean.functions)):
        imports = {entry.domain: entry.version for entry in holder.opset_import}
        version = imports.get("", imports.get("ai.onnx", 0))
        for node in _nested(nodes):
            standard = node.domain in ("", "ai.onnx")
            if (node.op_type if standard else f"{node.domain}::{node.op_type}") not in anchors:
                continue
            if standard and not (version < 2 ** 31 and onnx.defs.has(node.op_type, version, "")):
                node.domain = "unknown"
            if node.domain not in imports:
                imports[node.domain] = 1
                holder.opset_import.add(domain=node.domain, version=1)
    return complaint(lean)


def _nested(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            yield from _nested(attribute.g.node)


def complaint_ir(model: ir.Model) -> str | None:
    """As `complaint`, for an onnx_ir model."""
    try:
        return complaint(lean_proto(model))
    except Exception as error:
        return f"it cannot be serialized: {' '.join(str(error).split())[:600]}"


def lean_proto(model: ir.Model) -> onnx.ModelProto:
    """A ModelProto of everything but the larger weights, whose tensors keep name and dtype and have no elements."""
    heavy = [(value, value.const_value) for value in initializers(model) if _is_heavy(value.const_value)]
    try:  # a clone would be cleaner, but fails where nodes are not sorted, which is to be found out
        for value, tensor in heavy:
            empty = onnx.TensorProto(name=value.name, data_type=tensor.dtype.value, dims=[0])
            value.const_value = ir.serde.TensorProtoTensor(empty)
        return ir.serde.serialize_model(model)
    finally:
        for value, tensor in heavy:
            value.const_value = tensor


def _is_heavy(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is not None and (isinstance(tensor, ir.ExternalTensor) or tensor.nbytes > LIGHT)


def byte_size(proto: onnx.ModelProto) -> float:
    """The serialized size in bytes; infinite where protobuf refuses to tell, above 2 GiB."""
    try:
        return proto.ByteSize()
    except Exception:  # EncodeError or ValueError, as the version goes
        return float("inf")


def declared_size(tensor: onnx.TensorProto) -> int:
    """The bytes that dtype and shape of a tensor make; to ask protobuf takes the time and memory of serializing it."""
    try:
        return ir.DataType(tensor.data_type).bitwidth * math.prod(tensor.dims) // 8
    except (TypeError, ValueError):  # strings, and types unknown here
        return tensor.ByteSize()


def _copy_lean(source: Message, target: Message, most: int, size: Callable[[onnx.TensorProto], int]) -> None:
    """Copy a message without its external tensors' references and without tensors of more than `most` bytes."""
    for field, value in source.ListFields():
        if field.message_type is None:
            if isinstance(value, (bool, int, float, str, bytes)):
                setattr(target, field.name, value)
            else:
                getattr(target, field.name).extend(value)
            continue
        slot = getattr(target, field.name)
        if isinstance(value, Message):
            slot.SetInParent()
            _copy_item(value, slot, most, size)
        else:
            for item in value:
                _copy_item(item, slot.add(), most, size)


def _copy_item(item: Message, slot: Message, most: int, size: Callable[[onnx.TensorProto], int]) -> None:
    kind = item.DESCRIPTOR.name
    if kind == "TensorProto" and (item.data_location == onnx.TensorProto.EXTERNAL or size(item) > most):
        slot.name, slot.data_type = item.name, item.data_type
        slot.dims.append(0)
    elif kind in _HOLDERS and not (kind == "NodeProto" and not item.attribute):
        _copy_lean(item, slot, most, size)
    else:
        slot.CopyFrom(item)
