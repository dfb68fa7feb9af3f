"""Bodies in pieces: ONNXScript functions that call one another, written out as one flat FunctionProto.

Some runtimes resolve nested functions wrongly or not at all, so none may be left in a file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxscript import OnnxFunction
from onnxscript.values import Opset

from rewriter.functions import MARK

PIECES = Opset("pieces", 1)  # the domain of what is written out


def ints(*values: int) -> onnx.TensorProto:
    """An int64 vector for `Constant(value=...)`, the only spelling that opset 11 has."""
    return helper.make_tensor("", onnx.TensorProto.INT64, [len(values)], values)


def integer(value: int) -> onnx.TensorProto:
    """An int64 scalar."""
    return helper.make_tensor("", onnx.TensorProto.INT64, [], [value])


def floats(values) -> onnx.TensorProto:
    """A float32 tensor of the shape of `values`."""
    return numpy_helper.from_array(np.asarray(values, np.float32))


def flatten(function: OnnxFunction, pieces: Sequence[OnnxFunction], helpers: Collection[str],
            text: str) -> onnx.FunctionProto:
    """The function with the calls of `pieces` written out, and of its attributes `helpers` only those it reads.

    Args:
        text: what the function is, for its doc string.
    """
    body, bodies = function.to_function_proto(), {p.name: p.to_function_proto() for p in pieces}
    nodes: list[onnx.NodeProto] = []
    _write(body, {}, {}, "", bodies, nodes)
    # a body that consists of calls alone does not import ai.onnx, its pieces do
    imports = {o.domain: o for b in (body, *bodies.values()) for o in b.opset_import if o.domain == ""}
    read = {a.ref_attr_name for node in nodes for a in node.attribute}
    return helper.make_function(
        body.domain, body.name, body.input, body.output, nodes,
        opset_imports=list(imports.values()),
        attributes=[name for name in body.attribute if name not in helpers or name in read],
        doc_string=f"{MARK}: {text}",
    )


def _write(body: onnx.FunctionProto, names: Mapping[str, str], attributes: Mapping[str, onnx.AttributeProto],
           prefix: str, bodies: Mapping[str, onnx.FunctionProto], nodes: list[onnx.NodeProto]) -> None:
    """Append the nodes of `body`, its formal names replaced by `names`, its own prefixed."""

    def renamed(name: str) -> str:
        return names.get(name, prefix + name) if name else ""

    for node in body.node:
        inputs, outputs = [renamed(name) for name in node.input], [renamed(name) for name in node.output]
        given = [_resolved(a, attributes) for a in node.attribute]
        if node.domain == PIECES.domain:
            piece = bodies[node.op_type]
            inner = {**dict(zip(piece.input, inputs)), **dict(zip(piece.output, outputs))}
            _write(piece, inner, {a.name: a for a in given}, f"{outputs[0]}.", bodies, nodes)
        else:
            written = helper.make_node(node.op_type, inputs, outputs, domain=node.domain)
            written.attribute.extend(given)
            nodes.append(written)


def _resolved(attribute: onnx.AttributeProto, attributes: Mapping[str, onnx.AttributeProto]) -> onnx.AttributeProto:
    """The attribute, a reference to a formal one replaced by what the caller gave."""
    if attribute.ref_attr_name not in attributes:
        return attribute
    result = onnx.AttributeProto()
    result.CopyFrom(attributes[attribute.ref_attr_name])
    result.name = attribute.name
    return result
