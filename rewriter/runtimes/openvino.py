"""OpenVINO, which does not run functions of a model: teach it our operators, or write it a file without them.

    core = openvino.Core()
    rewriter.runtimes.openvino.register(core)
    compiled = core.compile_model("fused.onnx", "CPU")

maps every operator to OpenVINO's own when a model is read; `--target openvino` writes a file that needs nothing.
Both take the same form, see `elementwise`: on CPUs with bfloat16 OpenVINO multiplies matrices in it unless it is told
otherwise (INFERENCE_PRECISION_HINT "f32"), and a grid made so is off by pixels. It does not where a row of the result
has two or three elements, which is how tiny grids are made. Where a model has convolutions or
matrix products of its own, its default takes everything between them down to bfloat16, fused or not.

OpenVINO's GridSample takes images only, so volumes are declined; its CPU plugin computes float64 in float32.
"""

from __future__ import annotations

import math
import types
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.builder import Builder
from rewriter.errors import TargetError
from rewriter.runtimes import elementwise
from rewriter.runtimes.elementwise import base_grid, coordinates, places, plane_of
from rewriter.runtimes.stock import inline_nodes
from rewriter.scopes import Scope
from rewriter.vocabulary import DOMAIN

TINY = 4096  # pixels up to which a grid is one product: measured the fastest there, and exact (see the tests)
SMALLEST = -(2**63)
NO_VOLUMES = "OpenVINO's GridSample takes images only, not volumes"
MODES = {"linear": "bilinear", "bilinear": "bilinear", "nearest": "nearest", "cubic": "bicubic", "bicubic": "bicubic"}


def write_model(model: ir.Model) -> tuple[int, list[str]]:
    """Replace every node of ours by OpenVINO's best form in stock operators.

    Returns:
        How many nodes, and what else is needed (nothing).

    Raises:
        TargetError: an AffineGridSample of a volume.
    """
    return inline_nodes(model, _form), []


def _form(node: ir.Node, builder: Builder, scope: Scope) -> ir.Value:
    if node.op_type == "AffineGridSample" and elementwise.dims_of(node, scope) == 3:
        raise TargetError(f"AffineGridSample {node.name!r} in {scope.path}: {NO_VOLUMES}")
    return elementwise.form(node, builder, scope, tiny=TINY)


def register(core) -> None:
    """Make an `openvino.Core` read our operators: AffineGrid, AffineGridSample, Rot90, CustomRotScale.

    Static and dynamic shapes, every mode and padding, float16, bfloat16, float32 and (computed in float32 by the CPU
    plugin) float64; Rot90 of any element type OpenVINO has.

    Args:
        core: an `openvino.Core`; `core.read_model` and `core.compile_model` then read fused files.

    Raises:
        ImportError: openvino is not installed.
    """
    from openvino.frontend.onnx import ConversionExtension

    for op_type, convert in CONVERTERS.items():
        core.add_extension(ConversionExtension(op_type, DOMAIN, convert))


def _ops() -> types.ModuleType:
    import openvino.opset13 as ops

    return ops


def _affine_grid(node) -> list:
    theta, size = node.get_input(0), node.get_input(1)
    kind = theta.get_element_type()
    d = _dims(theta, size)
    grid = grid_of(_widened(theta), size, _integer(node, "align_corners"), d)
    return [_converted(grid, kind).output(0)]


def _affine_grid_sample(node) -> list:
    x, theta, size = (node.get_input(i) for i in range(3))
    if _dims(theta, size, x) == 3:
        raise TargetError(f"AffineGridSample: {NO_VOLUMES}")
    grid = grid_of(_widened(theta), size, _integer(node, "grid_align_corners"), 2)
    attributes = {"mode": MODES[node.get_attribute("mode", "linear")],
                  "padding_mode": node.get_attribute("padding_mode", "zeros"),
                  "align_corners": bool(_integer(node, "align_corners"))}
    return [_ops().grid_sample(x, grid, attributes).output(0)]


def _rot90(node) -> list:
    axes = [int(axis) for axis in node.get_attribute("axes", [0, 1])]
    return [_turned(node, _integer(node, "k", 1), axes).output(0)]


def _rot_scale(node) -> list:
    from patterns.operators.rot90 import axes_of

    ops = _ops()
    turned = _turned(node, _integer(node, "rotations", 1), axes_of(node.get_attribute("dims", "height,width")))
    factor, kind = np.array(node.get_attribute("scale_factor", 1.0), np.float32), turned.output(0).get_element_type()
    if kind.get_type_name() == "bf16":  # rounded here: OpenVINO cuts the lower bits off
        factor = factor.astype(ir.DataType.BFLOAT16.numpy()).astype(np.float32)
    return [ops.multiply(turned, _converted(ops.constant(factor), kind)).output(0)]


CONVERTERS = {"AffineGrid": _affine_grid, "AffineGridSample": _affine_grid_sample, "Rot90": _rot90,
              "CustomRotScale": _rot_scale}


def grid_of(theta, size, corners: int, d: int):
    """The grid in theta's element type, as `elementwise.grid_of` makes it; OpenVINO folds what is constant.

    Args:
        theta, size: outputs of OpenVINO nodes; theta float32 or float64.
        corners: align_corners of the grid.
        d: spatial axes, 2 or 3.
    """
    ops = _ops()
    known = _constant(size)
    real = theta.get_element_type()
    ones = [1] * (d - 1)
    batch = theta.get_partial_shape()[0] if theta.get_partial_shape().rank.is_static else None
    fits = batch is not None and known is not None and batch.is_static and batch.get_length() == int(known[0])
    expands = known is None or (int(known[0]) != 1 and not fits)
    if not expands and math.prod(known[2:]) <= TINY:
        base = ops.constant(base_grid(known[2:], corners)[None].astype(real.to_dtype()))
        return ops.reshape(ops.matmul(base, theta, False, True), _ints(0, *(int(n) for n in known[2:]), d), True)

    def axis(place: int):
        shape = [-1 if k == place - 1 else 1 for k in range(d + 1)]
        repeats = d if place == d + 1 else 1
        if known is not None:
            array = np.repeat(coordinates(int(known[place]), corners), repeats)
            return ops.constant(array.reshape(shape).astype(real.to_dtype()))
        n = ops.gather(size, _ints(place, scalar=True), _ints(0, scalar=True))
        odd = ops.range(ops.subtract(_ints(1, scalar=True), n), n, _ints(2, scalar=True), "i64")
        span = ops.convert(ops.subtract(n, _ints(1, scalar=True)) if corners else n, real)
        if corners:
            span = ops.maximum(span, ops.constant(np.array(1, real.to_dtype())))
        line = ops.divide(ops.convert(odd, real), span)
        if repeats > 1:
            line = ops.tile(ops.reshape(line, _ints(-1, 1), False), _ints(1, repeats))
        return ops.reshape(line, _ints(*shape), False)

    flat = ops.reshape(theta, _ints(0, d * (d + 1)), True)
    widths = ops.concat([_ints(*ones), ops.gather(size, _ints(d + 1), _ints(0, scalar=True))], 0)
    rows = ops.gather(flat, ops.tile(ops.constant(places(d)), widths), _ints(1, scalar=True))
    row = ops.split(rows, _ints(1, scalar=True), d + 1).output  # [N, 1, (1,) W*d] each: a column of theta
    grid = ops.add(ops.multiply(row(0), axis(d + 1)), row(d))
    if expands:
        count = ops.gather(size, _ints(0), _ints(0, scalar=True))
        target = ops.concat([count, _ints(*ones, 1)], 0)
        grid = ops.broadcast(grid, target, broadcast_spec="BIDIRECTIONAL")
    for k in range(1, d):
        grid = ops.add(grid, ops.multiply(row(k), axis(d + 1 - k)))
    spatial = ops.slice(size, _ints(2), _ints(d + 2), _ints(1))
    return ops.reshape(grid, ops.concat([_ints(0), spatial, _ints(d)], 0), True)


def _turned(node, turns: int, axes: Sequence[int]):
    """Transpose and Gather, OpenVINO's fastest flip of a last axis; Slice where the length is open."""
    ops = _ops()
    x = node.get_input(0)
    rank = _rank(node, x)
    turn, plane = plane_of(turns, axes, rank)
    perm = list(range(rank))
    perm[plane[0]], perm[plane[1]] = plane[1], plane[0]
    if turn == 1:
        return _reversed(ops.transpose(x, _ints(*perm)), plane[:1])
    if turn == 2:
        return _reversed(x, plane)
    if turn == 3:
        return ops.transpose(_reversed(x, plane[:1]), _ints(*perm))
    return ops.reshape(x, ops.shape_of(x), False)


def _reversed(value, axes: Sequence[int]):
    ops = _ops()
    for axis in axes:
        shape = value.get_partial_shape() if hasattr(value, "get_partial_shape") else value.get_output_partial_shape(0)
        if shape.rank.is_static and shape[axis].is_static:
            order = np.arange(shape[axis].get_length(), dtype=np.int64)[::-1].copy()
            value = ops.gather(value, ops.constant(order), _ints(axis, scalar=True))
        else:
            value = ops.slice(value, _ints(-1), _ints(SMALLEST), _ints(-1), _ints(axis))
    return value


def _rank(node, x) -> int:
    if node.has_attribute("perm"):
        return len(node.get_attribute("perm"))
    rank = x.get_partial_shape().rank
    if rank.is_dynamic:
        raise TargetError(f"{node.get_op_type()}: the rank of what it turns is unknown")
    return rank.get_length()


def _dims(theta, size, x=None) -> int:
    """The number of spatial axes."""
    ranks = [(x.get_partial_shape().rank, -2)] if x is not None else []
    shapes = [(theta.get_partial_shape(), 1, 0), (size.get_partial_shape(), 0, -2)]
    ranks += [(shape[index], more) for shape, index, more in shapes if shape.rank.is_static]
    for length, more in ranks:
        if length.is_static:
            return length.get_length() + more
    raise TargetError("nothing in the model tells whether a grid is a plane or a volume")


def _constant(output) -> np.ndarray | None:
    node = output.get_node()
    return node.get_vector() if node.get_type_name() == "Constant" else None


def _integer(node, name: str, default: int = 0) -> int:
    return int(node.get_attribute(name, default))


def _ints(*values: int, scalar: bool = False):
    return _ops().constant(np.array(values[0] if scalar else values, np.int64))


def _widened(theta):
    """theta in the type that coordinates are computed in."""
    kind = theta.get_element_type().get_type_name()
    return theta if kind in ("f32", "f64") else _ops().convert(theta, "f32").output(0)


def _converted(node, kind):
    return node if node.output(0).get_element_type() == kind else _ops().convert(node, kind)
