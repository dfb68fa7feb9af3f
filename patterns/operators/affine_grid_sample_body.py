"""The fallback body of AffineGridSample: the wide product (see `grid_pieces`), then GridSample on its fast path.

ONNX Runtime's GridSample is several times faster for linear + zeros + align_corners=0 on images than otherwise, so
other linear uses are turned into that one:

    align_corners=1   reads the same pixels as align_corners=0 at coordinates times (n - 1) / n; the factor goes into
                      theta. Exact in real arithmetic, for an image of one pixel too.
    border            is zeros once coordinates are clamped to the centres of the outermost pixels.
    reflection        is border once coordinates are folded into [-1, 1] (for align_corners=1 into +-(n - 1) / n).

Grids of half a million pixels and more are sampled in four strips, since GridSample plans 56 bytes a pixel.
"""

from __future__ import annotations

import dataclasses

import onnx
from onnxscript import script
from onnxscript.values import Opset

from patterns.operators.flat import PIECES, flatten, floats, ints
from patterns.operators.grid_pieces import BACK, COLUMN, V0, V2, V3, V4, pieces
from rewriter.vocabulary import DOMAIN, DOMAIN_VERSION

FLOAT = onnx.TensorProto.FLOAT
OURS = Opset(DOMAIN, DOMAIN_VERSION)
HELPERS = ("dtype", "compute", "image", "fold", "taps", "corners", "beyond")
BEGIN = ints(-(2**63))
QUARTER, FOUR = floats(0.25), floats(4)
INWARD = floats(1 - 2.0**-24)  # keeps the last pixel's centre inside the image, however its coordinate is rounded


@dataclasses.dataclass(frozen=True)
class Needs:
    """What some use in the model needs, beside GridSample.

    Attributes:
        cast: a dtype other than float32 occurs; double, brain: float64, bfloat16 do.
        folding, clamping: align_corners=1 or border on the fast path.
        reflecting: reflection on the fast path, which all uses must then be.
        direct: all uses call GridSample with the padding_mode that is written on them.
        corners: the align_corners that all uses give to GridSample, or None where they differ.
        strips: all grids are large, and planes.
    """

    cast: bool
    double: bool
    brain: bool
    folding: bool
    clamping: bool
    reflecting: bool
    direct: bool
    corners: int | None
    strips: bool


def body(opset: int, dims: set[int], needs: Needs, text: str) -> onnx.FunctionProto:
    """The function for uses with these numbers of spatial axes. Its attributes tell which of HELPERS it reads."""
    op = Opset("", opset)
    cast, double, brain, direct, strips = needs.cast, needs.double, needs.brain, needs.direct, needs.strips
    folding, clamping, reflecting = needs.folding, needs.clamping, needs.reflecting
    uniform, corner = needs.corners is not None, needs.corners  # onnx's ReferenceEvaluator misreads a referenced 0
    rows, columns, shape, *others = pieces(op, dims, double)

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
            y0 = sampled(x, a0, b, limit, reach, upper, mode=mode, padding_mode=padding_mode, taps=taps,
                         corners=corners)
            y1 = sampled(x, a1, b, limit, reach, upper, mode=mode, padding_mode=padding_mode, taps=taps,
                         corners=corners)
            y2 = sampled(x, a2, b, limit, reach, upper, mode=mode, padding_mode=padding_mode, taps=taps,
                         corners=corners)
            y3 = sampled(x, a3, b, limit, reach, lowest, mode=mode, padding_mode=padding_mode, taps=taps,
                         corners=corners)
            y = op.Concat(y0, y1, y2, y3, axis=2)
        else:
            y = sampled(x, a, b, limit, reach, shape(size), mode=mode, padding_mode=padding_mode, taps=taps,
                        corners=corners)
        if brain:
            y = op.Cast(y, to=dtype)
        return y

    return flatten(AffineGridSample, [rows, columns, shape, *others, shrunk, along_row, sampled], HELPERS, text)
