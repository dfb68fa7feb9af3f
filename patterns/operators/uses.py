"""What is known of the nodes that a body is generated for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from rewriter.graphs import constant_integers

HALVES = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


def dtype_of(node: ir.Node, operands: Sequence[int]) -> ir.DataType:
    """Of the result: as declared; else as some operand's; else as an earlier run wrote down; else float32."""
    for value in (node.outputs[0], *(node.inputs[i] for i in operands)):
        if value is not None and value.dtype is not None:
            return value.dtype
    return ir.DataType(node.attributes["dtype"].as_int()) if "dtype" in node.attributes else ir.DataType.FLOAT


def size_of(value: ir.Value | None) -> tuple[int, ...] | None:
    """The numbers in a constant `size`."""
    known = constant_integers(value)
    return None if known is None else tuple(known)


def dims_of(theta: ir.Value | None, size: ir.Value | None, images: Sequence[ir.Value | None]) -> tuple[int, ...]:
    """The number of spatial axes of a node, from the size, a value [N, ..] with two more axes than that, or theta;
    (2, 3) where nothing tells.
    """
    if (known := size_of(size)) is not None:
        return (len(known) - 2,)
    for image in images:
        if image is not None and image.shape is not None:
            return (len(image.shape) - 2,)
    if theta is not None and theta.shape is not None and len(theta.shape) == 3 and isinstance(theta.shape[1], int):
        return (theta.shape[1],)
    if size is not None and size.shape is not None and len(size.shape) == 1 and isinstance(size.shape[0], int):
        return (size.shape[0] - 2,)
    return (2, 3)


def write(node: ir.Node, helpers: dict[str, int | float | str], all_helpers: Iterable[str]) -> None:
    """Set the node's helper attributes, and remove those of an earlier run that the new body does not read."""
    for name in all_helpers:
        node.attributes.pop(name, None)
    for name, value in helpers.items():
        node.attributes[name] = ir.convenience.convert_attribute(name, value)


def text_of(node: ir.Node, name: str, default: str) -> str:
    """A string attribute, or what the schema says where it is left out."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_string()


def integer_of(node: ir.Node, name: str) -> int:
    """An int attribute whose default is 0."""
    attribute = node.attributes.get(name)
    return 0 if attribute is None else attribute.as_int()
