"""`custom.ops::AffineGridSample`: contract, fallback function, numpy reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnxscript import script
from onnxscript.values import Opset

from patterns.operators.affine_grid import affine_grid
from patterns.operators.flat import PIECES, flatten, floats, ints
from patterns.operators.grid_pieces import BACK, COLUMN, V0, V2, V3, V4, pieces
from patterns.operators.sampling import grid_sample
from patterns.operators.uses import HALVES, dims_of, dtype_of, size_of, write
from rewriter.vocabulary import DOMAIN, DOMAIN_VERSION, Operator

FLOAT = onnx.TensorProto.FLOAT
HELPERS = ("dtype", "compute", "image", "fold", "taps", "corners", "beyond")
OURS = Opset(DOMAIN, DOMAIN_VERSION)
LARGE = 1 << 19  # pixels of a grid from which it is sampled in strips
BEGIN = ints(-(2**63))
QUARTER, FOUR = floats(0.25), floats(4)
INWARD = floats(1 - 2.0**-24)  # keeps the last pixel's centre inside the image, however its coordinate is rounded
BEYOND = 1e30


def affine_grid_sample(x: np.ndarray, theta: np.ndarray, size: Sequence[int], *, mode: str = "linear",
                       padding_mode: str = "zeros", align_corners: int = 0, grid_align_corners: int = 0) -> np.ndarray:
    """The operator in float64: x [N, C, spatial...] sampled at `affine_grid(theta, size)`."""
    grid = affine_grid(theta, size, align_corners=grid_align_corners)
    return grid_sample(x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)


def define(uses: Sequence[ir.Node], opset: int) -> onnx.FunctionProto:
    """The function for these nodes. Writes the helper attributes it reads on them (see `_plan`, and `dtype` of the
    result, `compute` of the grid, `image` of what GridSample is given, where some use is not float32).
    """
    dtypes = [dtype_of(node, (0,)) for node in uses]
    double, brain = ir.DataType.DOUBLE in dtypes, ir.DataType.BFLOAT16 in dtypes
    cast = bool(HALVES & set(dtypes)) or double
    dims = [dims_of(node.inputs[1], node.inputs[2], (node.outputs[0], node.inputs[0])) for node in uses]
    reflecting = not double and all(_linear(node, d, "reflection") for node, d in zip(uses, dims))
    plans = [_plan(node, d, double, reflecting) for node, d in zip(uses, dims)]
    if len({plan["corners"] for plan in plans}) > 1:
        plain = [_as_written(node) for node in uses]
        plans = plain if len({plan["corners"] for plan in plain}) == 1 else plans
    corners = {plan["corners"] for plan in plans}
    corner, uniform = min(corners), len(corners) == 1  # onnx's ReferenceEvaluator misreads a referenced 0
    direct = uniform and plans == [_as_written(node) for node in uses]
    folding, clamping = any(plan["fold"] for plan in plans), any(plan["beyond"] == 0 for plan in plans)
    strips = all(_large(node) for node in uses)
    op = Opset("", opset)
    rows, columns, shape, *others = pieces(op, set().union(*dims), double)

    @script(PIECES, default_opset=op)
    def shrunk(x, less: float, compute: int):
        """[d]: (n - less) / n for n = W_in, H_in[, D_in]."""
        back = op.Constant(value=BACK)
        extents = op.Slice(op.Shape(x, start=2), back, op.Constant(value=BEGIN), op.Constant(value=V0), back)
        if double:
            n = op.Cast(extents, to=compute)
            result = op.Div(op.Sub(n, op.Cast(op.Constant(value_float=less), to=compute)), n)
        else:
            n = op.Cast(extents, to=FLOAT)
            result = op.Div(op.Sub(n, op.Constant(value_float=less)), n)
        return result

    @script(PIECES, default_opset=op)
    def along_row(pair, size):
        """[W*d]: (x, y) for every pixel of a row of the wide product."""
        return op.Tile(pair, op.Gather(size, op.Constant(value=BACK)))

    @script(PIECES, default_opset=op)
    def sampled(x, a, b, limit, reach, shape, mode: str, padding_mode: str, taps: str, corners: int):
        """GridSample at A @ B."""
        wide = op.MatMul(a, b)
        if reflecting:  # B holds a quarter of the coordinate g: the distance of (g - 1) / 4 from the nearest integer
            shifted = op.Sub(wide, op.Constant(value=QUARTER))
            distance = op.Abs(op.Sub(shifted, op.Round(shifted)))
            wide = op.Sub(reach, op.Mul(distance, op.Mul(reach, op.Constant(value=FOUR))))
        if clamping:
            wide = op.Max(op.Min(wide, limit), op.Neg(limit))
        grid = op.Reshape(wide, shape)
        if direct:
            y = op.GridSample(x, grid, mode=mode, padding_mode=padding_mode, align_corners=corner)
        elif uniform:
            y = op.GridSample(x, grid, mode=mode, padding_mode=taps, align_corners=corner)
        else:
            y = op.GridSample(x, grid, mode=mode, padding_mode=taps, align_corners=corners)
        return y

    @script(OURS, default_opset=op)
    def AffineGridSample(x, theta, size, mode: str, padding_mode: str, align_corners: int, grid_align_corners: int,
                         fold: float, taps: str, corners: int, beyond: float, dtype: int, compute: int, image: int):
        if double:
            theta = op.Cast(theta, to=compute)
        elif cast:
            theta = op.Cast(theta, to=FLOAT)
        limit = size
        reach = size
        if reflecting:
            theta = op.Mul(theta, op.Constant(value=QUARTER))
            reach = along_row(shrunk(x, less=fold, compute=compute), size)
        elif folding:
            theta = op.Mul(theta, op.Reshape(shrunk(x, less=fold, compute=compute), op.Constant(value=COLUMN)))
        if clamping:
            centre = op.Mul(shrunk(x, less=1.0, compute=compute), op.Constant(value=INWARD))
            limit = along_row(op.Add(centre, op.Constant(value_float=beyond)), size)
        a = rows(size, align_corners=grid_align_corners, compute=compute)
        b = columns(theta, size, align_corners=grid_align_corners, compute=compute)
        if brain:
            x = op.Cast(x, to=image)
        if strips:
            height = op.Slice(size, op.Constant(value=V2), op.Constant(value=V3))
            width = op.Slice(size, op.Constant(value=V3), op.Constant(value=V4))
            quarter = op.Div(height, op.Constant(value=V4))
            rest = op.Sub(height, op.Mul(quarter, op.Constant(value=V3)))
            a0, a1, a2, a3 = op.Split(a, op.Concat(quarter, quarter, quarter, rest, axis=0), axis=1)
            upper = op.Concat(op.Constant(value=V0), quarter, width, op.Constant(value=V2), axis=0)
            lowest = op.Concat(op.Constant(value=V0), rest, width, op.Constant(value=V2), axis=0)
            y0 = sampled(x, a0, b, limit, reach, upper, mode=mode, padding_mode=padding_mode, taps=taps, corners=corners)
            y1 = sampled(x, a1, b, limit, reach, upper, mode=mode, padding_mode=padding_mode, taps=taps, corners=corners)
            y2 = sampled(x, a2, b, limit, reach, upper, mode=mode, padding_mode=padding_mode, taps=taps, corners=corners)
            y3 = sampled(x, a3, b, limit, reach, lowest, mode=mode, padding_mode=padding_mode, taps=taps, corners=corners)
            y = op.Concat(y0, y1, y2, y3, axis=2)
        else:
            y = sampled(x, a, b, limit, reach, shape(size), mode=mode, padding_mode=padding_mode,
                        taps=taps, corners=corners)
        if brain:
            y = op.Cast(y, to=dtype)
        return y

    function = flatten(AffineGridSample, [rows, columns, shape, *others, shrunk, along_row, sampled], HELPERS,
                       AFFINE_GRID_SAMPLE.summary)
    for node, dtype, plan in zip(uses, dtypes, plans):
        write(node, {name: value for name, value in (plan | _types(dtype)).items() if name in function.attribute}, HELPERS)
        if cast:
            node.attributes.add(ir.AttrInt64("dtype", int(dtype)))
    return function


def _types(dtype: ir.DataType) -> dict[str, int]:
    """dtype: of the result. compute: of the grid. image: of what GridSample is given, which has no bfloat16 kernel."""
    single = dtype != ir.DataType.DOUBLE
    return {"dtype": int(dtype), "compute": int(ir.DataType.FLOAT if single else dtype),
            "image": int(ir.DataType.FLOAT if dtype == ir.DataType.BFLOAT16 else dtype)}


def _plan(node: ir.Node, dims: tuple[int, ...], double: bool, reflecting: bool) -> dict[str, int | float | str]:
    """How GridSample is really called: ONNX Runtime has one fast path, linear + zeros + align_corners=0 on images.

    fold: 1 where coordinates are scaled so that align_corners=0 reads the same pixels as 1.
    beyond: 0 where coordinates are clamped to the outermost pixels' centres, which makes zeros of border.
    taps, corners: the padding_mode and align_corners that GridSample gets.
    """
    clamp = reflecting or (_linear(node, dims, "border") and not double)
    if clamp or _linear(node, dims, "zeros"):
        return {"fold": float(_integer(node, "align_corners")), "beyond": 0.0 if clamp else BEYOND, "taps": "zeros", "corners": 0}
    return _as_written(node)


def _as_written(node: ir.Node) -> dict[str, int | float | str]:
    return {"fold": 0.0, "beyond": BEYOND, "taps": _text(node, "padding_mode", "zeros"),
            "corners": _integer(node, "align_corners")}


def _linear(node: ir.Node, dims: tuple[int, ...], padding: str) -> bool:
    """Is it an image sampled linearly, with this padding?"""
    return (dims == (2,) and _text(node, "mode", "linear") in ("linear", "bilinear")
            and _text(node, "padding_mode", "zeros") == padding)


def _large(node: ir.Node) -> bool:
    size = size_of(node.inputs[2])
    return size is not None and len(size) == 4 and size[2] * size[3] >= LARGE


def _text(node: ir.Node, name: str, default: str) -> str:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_string()


def _integer(node: ir.Node, name: str) -> int:
    attribute = node.attributes.get(name)
    return 0 if attribute is None else attribute.as_int()


AFFINE_GRID_SAMPLE = Operator(
    name="AffineGridSample",
    signature="AffineGridSample(x, theta, size) -> y",
    summary="The image of an affine transform: x sampled at AffineGrid(theta, size), the grid never stored.",
    inputs=(), outputs=(), attributes=(), edge_cases=(),
    since=16, define=define, reference=affine_grid_sample,
)
