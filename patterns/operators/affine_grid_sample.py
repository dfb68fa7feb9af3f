"""`custom.ops::AffineGridSample`: contract, fallback function, numpy reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir

from patterns.operators.affine_grid import affine_grid
from patterns.operators.affine_grid_sample_body import HELPERS, Needs, body
from patterns.operators.sampling import grid_sample
from patterns.operators.uses import dims_of, dtype_of, integer_of, size_of, text_of, write
from rewriter.vocabulary import Operator

LARGE = 1 << 19  # pixels of a grid from which it is sampled in strips
BEYOND = 1e30  # no limit to coordinates


def affine_grid_sample(x: np.ndarray, theta: np.ndarray, size: Sequence[int], *, mode: str = "linear",
                       padding_mode: str = "zeros", align_corners: int = 0, grid_align_corners: int = 0) -> np.ndarray:
    """The operator in float64: x [N, C, spatial...] sampled at `affine_grid(theta, size)`."""
    grid = affine_grid(theta, size, align_corners=grid_align_corners)
    return grid_sample(x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)


def define(uses: Sequence[ir.Node], opset: int) -> onnx.FunctionProto:
    """The function for these nodes. Writes the helper attributes it reads on them (see `_plan` and `_types`), and
    `dtype` wherever a dtype other than float32 occurs.
    """
    dtypes = [dtype_of(node, (0,)) for node in uses]
    double = ir.DataType.DOUBLE in dtypes
    dims = [dims_of(node.inputs[1], node.inputs[2], (node.outputs[0], node.inputs[0])) for node in uses]
    reflecting = not double and all(_linear(node, d, "reflection") for node, d in zip(uses, dims))
    written = [_as_written(node) for node in uses]
    plans = [_plan(node, d, double, reflecting) for node, d in zip(uses, dims)]
    if len(_corners(plans)) > 1 and len(_corners(written)) == 1:
        plans = written
    corners = _corners(plans)
    needs = Needs(
        cast=set(dtypes) != {ir.DataType.FLOAT}, double=double, brain=ir.DataType.BFLOAT16 in dtypes,
        folding=any(plan["fold"] for plan in plans), clamping=any(plan["beyond"] == 0 for plan in plans),
        reflecting=reflecting, direct=len(corners) == 1 and plans == written,
        corners=corners.pop() if len(corners) == 1 else None, strips=all(_large(node) for node in uses),
    )
    function = body(opset, set().union(*dims), needs, AFFINE_GRID_SAMPLE.summary)
    for node, dtype, plan in zip(uses, dtypes, plans):
        helpers = {name: value for name, value in (plan | _types(dtype)).items() if name in function.attribute}
        write(node, helpers | ({"dtype": int(dtype)} if needs.cast else {}), HELPERS)
    return function


def _corners(plans: Sequence[dict]) -> set[int]:
    return {plan["corners"] for plan in plans}


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
        fold = float(integer_of(node, "align_corners"))
        return {"fold": fold, "beyond": 0.0 if clamp else BEYOND, "taps": "zeros", "corners": 0}
    return _as_written(node)


def _as_written(node: ir.Node) -> dict[str, int | float | str]:
    return {"fold": 0.0, "beyond": BEYOND, "taps": text_of(node, "padding_mode", "zeros"),
            "corners": integer_of(node, "align_corners")}


def _linear(node: ir.Node, dims: tuple[int, ...], padding: str) -> bool:
    """Is it an image sampled linearly, with this padding?"""
    return (dims == (2,) and text_of(node, "mode", "linear") in ("linear", "bilinear")
            and text_of(node, "padding_mode", "zeros") == padding)


def _large(node: ir.Node) -> bool:
    size = size_of(node.inputs[2])
    return size is not None and len(size) == 4 and size[2] * size[3] >= LARGE


AFFINE_GRID_SAMPLE = Operator(
    name="AffineGridSample",
    signature="AffineGridSample(x, theta, size) -> y",
    summary="The image of an affine transform, GridSample(x, AffineGrid(theta, size)), with the grid never stored nor "
            "rounded to T.",
    inputs=(
        ("x", "[N, C, H_in, W_in] or [N, C, D_in, H_in, W_in] of type T: float16, bfloat16, float32 or float64"),
        ("theta", "as AffineGrid's, of type T or float32"),
        ("size", "as AffineGrid's; as many spatial axes as x has"),
    ),
    outputs=(("y", "[N, C, H, W] or [N, C, D, H, W] of type T: N and C of x, the spatial axes of size"),),
    attributes=(
        ("mode", 'string, default "linear": or "nearest" (ties to even), "cubic" (a = -0.75; images only); "bilinear" '
                 'and "bicubic" mean the same, and are what is written in models of opset 16 to 19'),
        ("padding_mode", 'string, default "zeros": or "border", "reflection", as GridSample\'s'),
        ("align_corners", "int, default 0: GridSample's, how a coordinate becomes a pixel of x"),
        ("grid_align_corners", "int, default 0: AffineGrid's, how a pixel of y becomes a coordinate"),
    ),
    edge_cases=(
        "N of x equals the grid's, by the batch rule; x does not broadcast.",
        "The grid is float32, or float64 where T is; sums are at least as exact as T, and y is rounded once.",
        "Spatial axes of x and y are 1 or longer. N or C may be 0, and y is then empty.",
        "Coordinates outside the image, however far (1e30), follow the padding mode. The fallback leaves those beyond "
        "2^31 pixels to the runtime's GridSample, which may take them for another pixel.",
        "Where a coordinate is NaN or infinite the value of y is left open, and runtimes differ. Nothing outside x is "
        "read, and no other element of y is touched.",
    ),
    since=16, define=define, reference=affine_grid_sample,
)
