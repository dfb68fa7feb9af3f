"""Forms for engines that may compute matrix products in a reduced precision.

OpenVINO multiplies matrices in bfloat16 on CPUs that can, TensorRT in TF32 on GPUs that can, and a grid of either is
off by pixels. Here it takes two multiplications and two additions a coordinate, along rows of W * d elements:

    grid[n, h, (w, c)] = (theta[n, c, 0] * x_w + theta[n, c, 2]) + theta[n, c, 1] * y_h

Sizes that are constant are folded where the nodes are made, by numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.builder import Builder
from rewriter.errors import TargetError
from rewriter.scopes import Scope

HALVES = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
SMALLEST = -(2**63)


def coordinates(n: int, align_corners: int) -> np.ndarray:
    """[n], float64: (2i + 1 - n) / max(n - align_corners, 1)."""
    return (2 * np.arange(n) + 1.0 - n) / max(n - align_corners, 1)


def plane_of(turns: int, axes: Sequence[int], rank: int) -> tuple[int, tuple[int, int]]:
    """Quarter turns 0..3 in a plane of two ascending axes >= 0."""
    first, second = (axis % rank for axis in axes)
    return (turns % 4, (first, second)) if first < second else (-turns % 4, (second, first))


def form(node: ir.Node, builder: Builder, scope: Scope, *, wide_image: bool = False, tiny: int = 0) -> ir.Value:
    """The nodes for one of ours, see `stock.inline_nodes`.

    Args:
        wide_image: sample images of float16 and bfloat16 in float32, for engines that want grid and image of one type.
        tiny: see `grid_of`.

    Raises:
        TargetError: the number of axes is not known.
    """
    if node.op_type == "AffineGrid":
        return _affine_grid(node, builder, scope, tiny)
    if node.op_type == "AffineGridSample":
        return _sample(node, builder, scope, wide_image, tiny)
    return (_rot90 if node.op_type == "Rot90" else _rot_scale)(node, builder, scope)


def _affine_grid(node: ir.Node, b: Builder, scope: Scope, tiny: int) -> ir.Value:
    theta, size = node.inputs
    dtype = _dtype(node, scope, 0)
    d = dims_of(node, scope)
    corners = node.attributes["align_corners"].as_int()
    grid = grid_of(b, scope, _cast(b, theta, dtype, _wide(dtype)), size, corners, d, tiny)
    return _cast(b, grid, _wide(dtype), dtype)


def _sample(node: ir.Node, b: Builder, scope: Scope, wide_image: bool, tiny: int) -> ir.Value:
    x, theta, size = node.inputs
    dtype = _dtype(node, scope, 0)
    given = scope.dtype(theta) or dtype
    theta = _cast(b, theta, given, _wide(dtype))
    corners = node.attributes["grid_align_corners"].as_int()
    grid = grid_of(b, scope, theta, size, corners, dims_of(node, scope), tiny)
    kept = {name: node.attributes[name] for name in ("mode", "padding_mode", "align_corners")}
    image = _wide(dtype) if wide_image else dtype
    y = b.op("GridSample", [_cast(b, x, dtype, image), grid], dtype=image, **kept)
    return _cast(b, y, image, dtype)


def base_grid(spatial: Sequence[int], corners: int) -> np.ndarray:
    """[pixels, d + 1], float64: (x, y[, z], 1) of every pixel."""
    axes = [coordinates(int(n), corners) for n in spatial]
    return np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones([int(n) for n in spatial])], -1).reshape(
        -1, len(axes) + 1)


def places(d: int) -> np.ndarray:
    """[d + 1, (1,) d]: where each column of theta [d, d + 1] lies when theta is one row."""
    return np.arange(d * (d + 1)).reshape(d, d + 1).T.reshape(d + 1, *(1,) * (d - 2), d)


def grid_of(b: Builder, scope: Scope, theta: ir.Value, size: ir.Value, corners: int, d: int, tiny: int = 0) -> ir.Value:
    """The grid [N, (D,) H, W, d] in theta's dtype, float32 or float64.

    The last two axes are one until the end. Up to `tiny` pixels, as far as that is known, it is one product with a base
    grid.
    """
    known = scope.constant(size)
    kind = b.dtype(theta) or ir.DataType.FLOAT
    ints = lambda *values: b.constant(np.array(values, np.int64), "ints")  # noqa: E731
    scalar = lambda value: b.constant(np.array(value, np.int64), "int")  # noqa: E731
    ones = (1,) * (d - 1)
    expands = known is None or (int(known[0]) != 1 and _batch(scope, theta) != int(known[0]))
    if not expands and math.prod(known[2:]) <= tiny:
        base = b.constant(base_grid(known[2:], corners).astype(kind.numpy()), "base")
        flat = b.op("MatMul", [base, b.op("Transpose", [theta], perm=[0, 2, 1])], dtype=kind)
        return b.reshape(flat, [0, *(int(n) for n in known[2:]), d])

    def axis(place: int) -> ir.Value:
        """The coordinates of the axis whose length `size` holds at `place`, along axis `place - 1` of the grid; those
        of the last d times each."""
        shape = [-1 if k == place - 1 else 1 for k in range(d + 1)]
        repeats = d if place == d + 1 else 1
        if known is not None:
            array = np.repeat(coordinates(int(known[place]), corners), repeats)
            return b.constant(array.reshape(shape).astype(kind.numpy()), "axis")
        n = b.op("Gather", [size, scalar(place)], dtype=ir.DataType.INT64)
        odd = b.op("Range", [b.op("Sub", [scalar(1), n]), n, scalar(2)])
        span = b.op("Cast", [b.op("Sub", [n, scalar(1)]) if corners else n], dtype=kind, to=int(kind))
        if corners:
            span = b.op("Max", [span, b.constant(np.array(1, kind.numpy()), "one")])
        line = b.op("Div", [b.op("Cast", [odd], dtype=kind, to=int(kind)), span])
        if repeats > 1:
            line = b.op("Tile", [b.op("Reshape", [line, ints(-1, 1)]), ints(1, repeats)])
        return b.op("Reshape", [line, ints(*shape)])

    flat = b.reshape(theta, [0, d * (d + 1)])
    # [N, 1, (1,) W*d] each: a column of theta, what x, y[, z] or 1 is multiplied with
    if known is not None:
        columns = np.tile(places(d), int(known[d + 1])).astype(np.int32)
        row = [b.op("Gather", [flat, b.constant(column[None], "places")], dtype=kind, axis=1)
               for column in columns]
    else:
        width = b.op("Gather", [size, ints(d + 1)], dtype=ir.DataType.INT64)
        index = b.op("Tile", [b.constant(places(d).astype(np.int32), "places"),
                              b.op("Concat", [ints(*ones), width], axis=0)])
        row = _split(b, scope, b.op("Gather", [flat, index], dtype=kind, axis=1), d + 1)
    grid = b.op("Add", [b.op("Mul", [row[0], axis(d + 1)]), row[d]])
    if expands:
        batch = b.op("Gather", [size, ints(0)], dtype=ir.DataType.INT64)
        grid = b.op("Expand", [grid, b.op("Concat", [batch, ints(*ones, 1)], axis=0)])
    for k in range(1, d):
        grid = b.op("Add", [grid, b.op("Mul", [row[k], axis(d + 1 - k)])])
    if known is not None:
        return b.reshape(grid, [0, *(int(n) for n in known[2:]), d])
    spatial = b.op("Slice", [size, ints(2), ints(d + 2)], dtype=ir.DataType.INT64)
    return b.op("Reshape", [grid, b.op("Concat", [ints(0), spatial, ints(d)], axis=0)])


def _split(b: Builder, scope: Scope, value: ir.Value, parts: int) -> list[ir.Value]:
    """Equal parts along axis 1."""
    attributes = {"axis": 1} | ({"num_outputs": parts} if scope.opset >= 18 else {})
    outputs = [ir.Value(name=b.name("row"), type=ir.TensorType(b.dtype(value))) for _ in range(parts)]
    b.nodes.append(ir.Node("", "Split", [value], ir.convenience.convert_attributes(attributes), outputs=outputs,
                           name=b.name("Split")))
    return outputs


def _rot90(node: ir.Node, b: Builder, scope: Scope) -> ir.Value:
    return _turned(node, b, scope, node.attributes["k"].as_int(), node.attributes["axes"].as_ints())


def _rot_scale(node: ir.Node, b: Builder, scope: Scope) -> ir.Value:
    from patterns.operators.rot90 import axes_of

    dtype = _dtype(node, scope, 0)
    turned = _turned(node, b, scope, node.attributes["rotations"].as_int(),
                     axes_of(node.attributes["dims"].as_string()))
    factor = np.array(node.attributes["scale_factor"].as_float(), np.float32).astype(dtype.numpy())
    return b.op("Mul", [turned, b.constant(factor, "factor")], dtype=dtype)


def _turned(node: ir.Node, b: Builder, scope: Scope, turns: int, axes: Sequence[int]) -> ir.Value:
    x = node.inputs[0]
    rank = rank_of(node, scope)
    turn, plane = plane_of(turns, axes, rank)
    perm = list(range(rank))
    perm[plane[0]], perm[plane[1]] = plane[1], plane[0]
    if turn == 1:
        return _reversed(b, scope, b.op("Transpose", [x], perm=perm), plane[:1], x, plane[1:])
    if turn == 2:
        return _reversed(b, scope, x, plane, x, plane)
    if turn == 3:
        return b.op("Transpose", [_reversed(b, scope, x, plane[:1], x, plane[:1])], perm=perm)
    return x


def _reversed(b: Builder, scope: Scope, value: ir.Value, axes: Sequence[int], source: ir.Value,
              places: Sequence[int]) -> ir.Value:
    """`value` reversed along axes whose lengths are those of `source` at `places`: Gather, or Slice for open ones."""
    shape = scope.shape(source)
    for axis, place in zip(axes, places):
        length = shape[place] if shape is not None else None
        if isinstance(length, int):
            value = b.op("Gather", [value, b.constant(np.arange(length, dtype=np.int64)[::-1].copy(), "order")],
                         axis=axis)
        else:
            ints = [b.constant(np.array([n], np.int64), "ints") for n in (-1, SMALLEST, axis, -1)]
            value = b.op("Slice", [value, *ints])
    return value


def dims_of(node: ir.Node, scope: Scope) -> int:
    """Spatial axes of an AffineGrid or AffineGridSample node.

    Raises:
        TargetError: nothing tells.
    """
    theta, size = node.inputs[-2:]
    known, shape = scope.constant(size), scope.shape(theta)
    if known is not None:
        return len(known) - 2
    if shape is not None and len(shape) == 3 and isinstance(shape[1], int):
        return shape[1]
    for value in (*node.outputs, node.inputs[0]):
        shape = scope.shape(value)
        if shape is not None and len(shape) in (4, 5):
            return len(shape) - 2
    shape = scope.shape(size)
    if shape is not None and len(shape) == 1 and isinstance(shape[0], int):
        return shape[0] - 2
    raise TargetError(f"{node.op_type} {node.name!r}: nothing in the model tells whether it is a plane or a volume")


def rank_of(node: ir.Node, scope: Scope) -> int:
    """Of what a Rot90 or CustomRotScale turns: its helper attribute tells, or a shape.

    Raises:
        TargetError: nothing tells.
    """
    if "perm" in node.attributes:
        return len(node.attributes["perm"].as_ints())
    shape = scope.shape(node.inputs[0]) or scope.shape(node.outputs[0])
    if shape is None:
        raise TargetError(f"{node.op_type} {node.name!r}: the rank of what it turns is unknown")
    return len(shape)


def _batch(scope: Scope, theta: ir.Value) -> int | str | None:
    """Of theta, before or behind a Cast of ours."""
    node = theta.producer()
    source = node.inputs[0] if node is not None and node.op_type == "Cast" and node.graph is None else theta
    shape = scope.shape(source)
    return shape[0] if shape else None


def _dtype(node: ir.Node, scope: Scope, index: int) -> ir.DataType:
    known = scope.dtype(node.inputs[index]) or node.outputs[0].dtype
    if known is None and "dtype" in node.attributes:
        known = ir.DataType(node.attributes["dtype"].as_int())
    return known or ir.DataType.FLOAT


def _wide(dtype: ir.DataType) -> ir.DataType:
    return ir.DataType.FLOAT if dtype in HALVES else dtype


def _cast(b: Builder, value: ir.Value, given: ir.DataType, wanted: ir.DataType) -> ir.Value:
    return value if given == wanted else b.op("Cast", [value], dtype=wanted, to=int(wanted))
