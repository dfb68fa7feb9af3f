"""`custom.ops::AffineGrid`: contract, fallback function, numpy reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnxscript import script
from onnxscript.values import Opset

from patterns.operators.flat import flatten
from patterns.operators.grid_pieces import pieces
from patterns.operators.uses import HALVES, dims_of, dtype_of, write
from rewriter.vocabulary import DOMAIN, DOMAIN_VERSION, LOWEST_OPSET, Operator

FLOAT = onnx.TensorProto.FLOAT
HELPERS = ("dtype", "compute")


def affine_grid(theta: np.ndarray, size: Sequence[int], *, align_corners: int = 0) -> np.ndarray:
    """The operator in float64.

    Args:
        theta: [N or 1, 2, 3] or [N or 1, 3, 4].
        size: (N or 1, C, H, W) or (N or 1, C, D, H, W).

    Returns:
        [N, H, W, 2] or [N, D, H, W, 3].
    """
    theta, spatial = np.asarray(theta, np.float64), [int(n) for n in size[2:]]
    axes = [(2 * np.arange(n) + 1.0 - n) / max(n - align_corners, 1) for n in spatial]
    base = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(spatial)], axis=-1)
    batch = np.broadcast_shapes(theta.shape[:1], (int(size[0]),))
    theta = np.broadcast_to(theta, (*batch, *theta.shape[1:]))
    return np.einsum("...j,ncj->n...c", base, theta)


def define(uses: Sequence[ir.Node], opset: int) -> onnx.FunctionProto:
    """The function for these nodes. Writes the helper attributes it reads on them: `dtype` where some grid is not
    float32, `compute` where some grid is float64.
    """
    dtypes = [dtype_of(node, (0,)) for node in uses]
    narrow, double = bool(HALVES & set(dtypes)), ir.DataType.DOUBLE in dtypes
    for node, dtype in zip(uses, dtypes):
        compute = ir.DataType.DOUBLE if dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
        helpers = {"dtype": int(dtype)} if narrow or double else {}
        write(node, helpers | ({"compute": int(compute)} if double else {}), HELPERS)
    dims = {d for node in uses for d in dims_of(node.inputs[0], node.inputs[1], node.outputs)}
    op = Opset("", opset)
    rows, columns, shape, *others = pieces(op, dims, double)

    @script(Opset(DOMAIN, DOMAIN_VERSION), default_opset=op)
    def AffineGrid(theta, size, align_corners: int, dtype: int, compute: int):
        if narrow:
            if double:  # noqa: SIM108, ONNXScript has no conditional expression
                theta = op.Cast(theta, to=compute)
            else:
                theta = op.Cast(theta, to=FLOAT)
        a = rows(size, align_corners=align_corners, compute=compute)
        b = columns(theta, size, align_corners=align_corners, compute=compute)
        grid = op.Reshape(op.MatMul(a, b), shape(size))
        if narrow:
            grid = op.Cast(grid, to=dtype)
        return grid

    return flatten(AffineGrid, [rows, columns, shape, *others], HELPERS, AFFINE_GRID.summary)


AFFINE_GRID = Operator(
    name="AffineGrid",
    signature="AffineGrid(theta, size) -> grid",
    summary="The sampling grid of an affine transform: theta applied to the normalised coordinates of every pixel, as "
            "torch.nn.functional.affine_grid.",
    inputs=(
        ("theta", "[Nt, 2, 3] or [Nt, 3, 4] of type T: float16, bfloat16, float32 or float64"),
        ("size", "int64 [4] = (N, C, H, W) or [5] = (N, C, D, H, W): the shape of the image that the grid will make; "
                 "C is ignored"),
    ),
    outputs=(
        ("grid", "[N, H, W, 2] or [N, D, H, W, 3] of type T, N by the batch rule; the last axis is (x, y[, z]) = "
                 "theta[n] @ (x_w, y_h[, z_d], 1)"),
    ),
    attributes=(
        ("align_corners", "int, default 0, called a here: index i of an axis of length n has the coordinate "
                          "(2i + 1 - n) / max(n - a, 1), so -1 and 1 are the outer edges of the outermost pixels "
                          "where a is 0, their centres where it is 1"),
    ),
    edge_cases=(
        "Coordinates are computed in float32 (float64 for float64) and rounded once, to T.",
        "An axis of length 1 has the coordinate 0 under both conventions.",
        "Spatial axes are 1 or longer. N may be 0, and the grid is then empty.",
        "NaN and infinities: where theta[n, c] holds one, coordinate c of every pixel of sample n is NaN or infinite "
        "(0 times an infinity is NaN; which of the two is left open); other coordinates are not touched.",
        "Finite theta of any size, 1e30 included, follows the formula; it overflows as T does.",
    ),
    since=LOWEST_OPSET, define=define, reference=affine_grid,
)
