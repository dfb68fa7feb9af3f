"""`custom.ops::Rot90` and `custom.ops::CustomRotScale`: contracts, fallback functions, numpy references."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnxscript.values import Opset

from patterns.operators import rot90_bodies as bodies
from patterns.operators.uses import dtype_of, write
from rewriter.vocabulary import LOWEST_OPSET, Operator

NAMED_AXES = {"width": -1, "height": -2, "depth": -3}
SUFFIX = "_tensor"  # of helper attributes in the form that opset 11 needs
TENSORS = frozenset(name + SUFFIX for name in (*bodies.HELPERS, "scale_factor"))


def axes_of(dims: str) -> tuple[int, int]:
    """The two axes that a CustomRotScale's `dims` names, as they are written there.

    Raises:
        ValueError: not two comma separated axes, each "width", "height", "depth" or an integer.
    """
    words = [word.strip() for word in dims.split(",")]
    try:
        first, second = (NAMED_AXES[word] if word in NAMED_AXES else int(word) for word in words)
    except ValueError:
        raise ValueError(f"dims {dims!r} are not two comma separated axes") from None
    return first, second


def dims_of(plane: tuple[int, int], rank: int) -> str:
    """How `dims` is written for a plane of two ascending axes >= 0."""
    return "height,width" if plane == (rank - 2, rank - 1) else f"{plane[0]},{plane[1]}"


def rot90(x: np.ndarray, *, k: int, axes: Sequence[int]) -> np.ndarray:
    """`numpy.rot90`: k quarter turns from axes[0] towards axes[1]."""
    return np.ascontiguousarray(np.rot90(x, k, tuple(axes)))


def rot_scale(x: np.ndarray, *, rotations: int, scale_factor: float, dims: str) -> np.ndarray:
    """`numpy.rot90`, then times the factor rounded to x's dtype."""
    factor = np.asarray(scale_factor, np.float64).astype(x.dtype).astype(np.float64)
    return (np.rot90(x, rotations, axes_of(dims)).astype(np.float64) * factor).astype(x.dtype)


def define_rot90(uses: Sequence[ir.Node], opset: int) -> onnx.FunctionProto:
    """The function for these nodes. Writes the helper attributes it reads on them."""
    return _define(bodies.rot90, ROT90.summary, uses, opset, lambda node: (
        node.attributes.get_int("k", 1), tuple(node.attributes.get_ints("axes", (0, 1)))))


def define_rot_scale(uses: Sequence[ir.Node], opset: int) -> onnx.FunctionProto:
    """The function for these nodes. Writes the helper attributes it reads on them."""
    for node in uses:
        node.attributes.add(ir.AttrInt64("dtype", int(dtype_of(node, (0,)))))
    return _define(bodies.rot_scale, CUSTOM_ROT_SCALE.summary, uses, opset, lambda node: (
        node.attributes.get_int("rotations", 1), axes_of(node.attributes.get_string("dims", "height,width"))))


def _define(body: Callable, text: str, uses: Sequence[ir.Node], opset: int, read: Callable) -> onnx.FunctionProto:
    placed = [(node, *canonical(*read(node), _rank(node))) for node in uses]
    turns = {turn for _, turn, _ in placed}
    for node, turn, plane in placed:
        rank = _rank(node)
        written = {"perm": bodies.swapped(plane, rank), **bodies.helpers(turn, plane, rank, turns)}
        write(node, written, bodies.HELPERS | TENSORS)
    proto = body(Opset("", max(opset, 12)), turns, text)
    return proto if opset >= 12 else _with_tensors(proto, uses, opset)


def canonical(turn: int, axes: tuple[int, int], rank: int) -> tuple[int, tuple[int, int]]:
    """Quarter turns 0..3 in a plane of two ascending axes >= 0."""
    first, second = (axis % rank for axis in axes)
    return (turn % 4, (first, second)) if first < second else (-turn % 4, (second, first))


def _rank(node: ir.Node) -> int:
    """Rank of the rotated tensor: every node carries `perm`, shapes may have been lost on the way."""
    if "perm" in node.attributes:
        return len(node.attributes["perm"].as_ints())
    shape = next((v.shape for v in (node.inputs[0], node.outputs[0]) if v is not None and v.shape is not None), None)
    if shape is None:
        raise ValueError(f"the rank of {node.outputs[0].name} is unknown")
    return len(shape)


def _with_tensors(proto: onnx.FunctionProto, uses: Sequence[ir.Node], opset: int) -> onnx.FunctionProto:
    """The same body before opset 12, where Constant has no attribute but `value`.

    What is the same on all nodes is written into the body, since onnx's ReferenceEvaluator cannot follow a
    reference there; only what differs stays an attribute, as a tensor.
    """
    domain_version = next(entry for entry in proto.opset_import if entry.domain == "")
    domain_version.version = opset
    for node in proto.node:
        if node.op_type != "Constant" or not node.attribute[0].ref_attr_name:
            continue
        attribute = node.attribute[0]
        name = attribute.ref_attr_name
        tensors = [_tensor(use.attributes[name]) for use in uses]
        attribute.name, attribute.type = "value", onnx.AttributeProto.TENSOR
        if all(np.array_equal(t.numpy(), tensors[0].numpy()) for t in tensors):
            attribute.ref_attr_name = ""
            attribute.t.CopyFrom(ir.to_proto(tensors[0]))
            continue
        attribute.ref_attr_name = name + SUFFIX
        proto.attribute.append(name + SUFFIX)
        for use, tensor in zip(uses, tensors):
            use.attributes.add(ir.AttrTensor(name + SUFFIX, tensor))
    return proto


def _tensor(attribute: ir.Attr) -> ir.Tensor:
    dtype = np.float32 if attribute.type == ir.AttributeType.FLOAT else np.int64
    return ir.Tensor(np.asarray(attribute.value, dtype))


ROT90 = Operator(
    name="Rot90",
    signature="Rot90(x) -> y",
    summary="Turns a tensor in the plane of two axes by quarter turns: numpy.rot90(x, k, axes).",
    inputs=(("x", "any dtype, any shape of rank 2 or more"),),
    outputs=(("y", "x's dtype; x's shape, with the two dims swapped where k is odd"),),
    attributes=(
        ("k", "int, default 1: quarter turns from axes[0] towards axes[1]; fusers write 1, 2 or 3, "
              "kernels take any integer modulo 4"),
        ("axes", "two distinct ints, default 0, 1: the plane; fusers write them ascending and non-negative, "
                 "kernels count negative ones from the end"),
    ),
    edge_cases=(
        "Axes of length 0 or 1 turn like any other.",
        "Elements are moved, never computed: NaN payloads and signed zeros survive.",
    ),
    since=LOWEST_OPSET,
    define=define_rot90,
    reference=rot90,
)

CUSTOM_ROT_SCALE = Operator(
    name="CustomRotScale",
    signature="CustomRotScale(x) -> y",
    summary="Rot90 in the plane `dims`, then times `scale_factor`.",
    inputs=(("x", "float16, bfloat16, float32 or float64; any shape of rank 2 or more"),),
    outputs=(("y", "x's dtype; x's shape, with the two dims swapped where rotations is odd"),),
    attributes=(
        ("rotations", "int, default 1: quarter turns from the first axis of `dims` towards the second, as Rot90's k"),
        ("scale_factor", "float, default 1: rounded to x's dtype before it multiplies"),
        ("dims", 'string, default "height,width": the plane, two comma separated axes, each "width" (the last axis), '
                 '"height" (the last but one), "depth" (the last but two) or an integer; fusers write "height,width" '
                 "or two ascending non-negative integers"),
    ),
    edge_cases=(
        "The product is rounded once, to x's dtype; NaN and infinities follow IEEE 754.",
        "With scale_factor 1 it equals Rot90.",
    ),
    since=LOWEST_OPSET,
    define=define_rot_scale,
    reference=rot_scale,
)
