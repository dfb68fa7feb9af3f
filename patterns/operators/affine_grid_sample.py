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
LARGE = 1 << 20  # pixels of a grid from which it is sampled in strips
BEGIN = ints(-(2**63))
STRIPS = ints(4)
INWARD = floats(1 - 2.0**-22)  # keeps the rounded coordinate of the last pixel's centre inside the image
UNIT, BEYOND = floats(1), 1e30


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
    thetas = {node.inputs[1].dtype for node in uses if node.inputs[1] is not None}
    double, brain = ir.DataType.DOUBLE in dtypes, ir.DataType.BFLOAT16 in dtypes
    cast = bool(HALVES & set(dtypes)) or double
    dims = [dims_of(node.inputs[1], node.inputs[2], (node.outputs[0], node.inputs[0])) for node in uses]
    plans = [_plan(node, d, double) for node, d in zip(uses, dims)]
    folding, clamping = any(plan["fold"] for plan in plans), any(plan["beyond"] == 0 for plan in plans)
    direct = not folding and not clamping
    strips = all(_large(node) for node in uses)
    for node, dtype, plan in zip(uses, dtypes, plans):
        helpers = {} if direct else plan
        if cast:
            helpers["dtype"] = int(dtype)
        if double:
            helpers["compute"] = int(dtype if dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT)
        if brain:
            helpers["image"] = int(ir.DataType.FLOAT if dtype == ir.DataType.BFLOAT16 else dtype)
        write(node, helpers, HELPERS)
    op = Opset("", opset)
    rows, columns, shape, *others = pieces(op, set().union(*dims), double)

    @script(PIECES, default_opset=op)
    def extents(x, compute: int):
        """[d]: (W_in, H_in[, D_in])."""
        back = op.Constant(value=BACK)
        reverse = op.Slice(op.Shape(x, start=2), back, op.Constant(value=BEGIN), op.Constant(value=V0), back)
        if double:
            result = op.Cast(reverse, to=compute)
        else:
            result = op.Cast(reverse, to=FLOAT)
        return result

    @script(PIECES, default_opset=op)
    def folded(x, theta, fold: float, compute: int):
        """theta for GridSample(align_corners=0): its rows times (n - 1) / n where fold is 1."""
        n = extents(x, compute=compute)
        if double:
            kept = op.Cast(op.Constant(value_float=fold), to=compute)
        else:
            kept = op.Constant(value_float=fold)
        return op.Mul(theta, op.Reshape(op.Div(op.Sub(n, kept), n), op.Constant(value=COLUMN)))

    @script(PIECES, default_opset=op)
    def limits(x, size, beyond: float):
        """[W*d]: how far from 0 a coordinate may be, the outermost pixel centres' and something beyond."""
        n = extents(x, compute=FLOAT)
        centre = op.Div(op.Mul(op.Sub(n, op.Constant(value=UNIT)), op.Constant(value=INWARD)), n)
        limit = op.Add(centre, op.Constant(value_float=beyond))
        return op.Tile(limit, op.Gather(size, op.Constant(value=BACK)))

    @script(PIECES, default_opset=op)
    def sampled(x, a, b, limit, shape, mode: str, padding_mode: str, align_corners: int, taps: str, corners: int):
        """GridSample at A @ B."""
        wide = op.MatMul(a, b)
        if clamping:
            wide = op.Max(op.Min(wide, limit), op.Neg(limit))
        grid = op.Reshape(wide, shape)
        if direct:
            y = op.GridSample(x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)
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
        if folding:
            theta = folded(x, theta, fold=fold, compute=compute)
        a = rows(size, align_corners=grid_align_corners, compute=compute)
        b = columns(theta, size, align_corners=grid_align_corners, compute=compute)
        limit = size
        if clamping:
            limit = limits(x, size, beyond=beyond)
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
            y0 = sampled(x, a0, b, limit, upper, mode=mode, padding_mode=padding_mode, align_corners=align_corners,
                         taps=taps, corners=corners)
            y1 = sampled(x, a1, b, limit, upper, mode=mode, padding_mode=padding_mode, align_corners=align_corners,
                         taps=taps, corners=corners)
            y2 = sampled(x, a2, b, limit, upper, mode=mode, padding_mode=padding_mode, align_corners=align_corners,
                         taps=taps, corners=corners)
            y3 = sampled(x, a3, b, limit, lowest, mode=mode, padding_mode=padding_mode, align_corners=align_corners,
                         taps=taps, corners=corners)
            y = op.Concat(y0, y1, y2, y3, axis=2)
        else:
            y = sampled(x, a, b, limit, shape(size), mode=mode, padding_mode=padding_mode,
                        align_corners=align_corners, taps=taps, corners=corners)
        if brain:
            y = op.Cast(y, to=dtype)
        return y

    return flatten(AffineGridSample, [rows, columns, shape, *others, extents, folded, limits, sampled], HELPERS,
                   AFFINE_GRID_SAMPLE.summary)


def _plan(node: ir.Node, dims: tuple[int, ...], double: bool) -> dict[str, int | float | str]:
    """How GridSample is really called: ONNX Runtime has one fast path, linear + zeros + align_corners=0 on images.

    fold: 1 where theta is scaled so that align_corners=0 reads the same pixels as 1.
    beyond: 0 where coordinates are clamped to the outermost pixels' centres, which makes zeros of border.
    taps, corners: the padding_mode and align_corners that GridSample gets.
    """
    padding, corners = _text(node, "padding_mode", "zeros"), _integer(node, "align_corners")
    linear = dims == (2,) and _text(node, "mode", "linear") in ("linear", "bilinear")
    clamp = linear and padding == "border" and not double
    if linear and (padding == "zeros" or clamp):
        return {"fold": float(corners), "beyond": 0.0 if clamp else BEYOND, "taps": "zeros", "corners": 0}
    return {"fold": 0.0, "beyond": BEYOND, "taps": padding, "corners": corners}


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
