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
            if double:
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


FLOAT = onnx.TensorProto.FLOAT

AFFINE_GRID = Operator(
    name="AffineGrid",
    signature="AffineGrid(theta, size) -> grid",
    summary="The sampling grid of an affine transform, theta applied to the normalised coordinates of every pixel.",
    inputs=(), outputs=(), attributes=(), edge_cases=(),
    since=LOWEST_OPSET, define=define, reference=affine_grid,
)
