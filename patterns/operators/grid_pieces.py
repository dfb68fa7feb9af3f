"""The grid as a wide product, grid[n] = A @ B[n], in pieces for `flat.flatten`.

    A [N or 1, D*H, d]   rows (1, y_h[, z_d]); its leading axis is size[0], which broadcasts against theta's batch
    B [N or 1, d, W*d]   row 0 holds theta[c, 0] * x_w + theta[c, d] at (w, c), row k holds theta[c, k]

A has long rows to fill and no base grid to read. B itself is a product, K @ theta^T, whose K is made of x alone.
Where `size` is constant, ONNX Runtime folds A and K when it loads the model and four nodes are left: FusedMatMul,
Reshape, MatMul, Reshape.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper
from onnxscript import OnnxFunction, script
from onnxscript.values import Opset

from patterns.operators.flat import PIECES, integer, ints

ZERO, ONE, TWO = integer(0), integer(1), integer(2)
X, Y, Z = integer(-1), integer(-2), integer(-3)  # where `size` holds the extents of these axes
V0, V1, V2, V3, V4, V5 = (ints(n) for n in range(6))
V00, V11, V30, COLUMN, BACK = ints(0, 0), ints(1, 1), ints(3, 0), ints(-1, 1), ints(-1)


def pieces(op: Opset, dims: set[int], double: bool) -> tuple[OnnxFunction, ...]:
    """(rows, columns, shape), which make A, B and the grid's shape; then all that these call.

    Args:
        op: of the model.
        dims: how many spatial axes the uses have, {2}, {3} or {2, 3}.
        double: whether some use computes in float64. The attribute `compute` then says which.
    """
    plane, mixed, early = dims == {2}, len(dims) > 1, op.version < 12
    d = 2 if plane else 3
    real = onnx.TensorProto.DOUBLE if double else onnx.TensorProto.FLOAT

    def units(*places: tuple[int, ...], shape: tuple[int, ...]) -> onnx.TensorProto:
        array = np.zeros(shape, np.float64 if double else np.float32)
        array[tuple(zip(*places))] = 1
        return numpy_helper.from_array(array)

    unit = units((), shape=())
    a_ones, a_y = (units((k,) + (0,) * (d - 1), shape=(d,) + (1,) * (d - 1)) for k in (0, 1))
    a_z = units((2, 0, 0), shape=(3, 1, 1))
    k_x = units((0, 0, 0), shape=(d + 1, d, 1))
    k_rest = units((d, 0, 0), *((k, k, 0) for k in range(1, d)), shape=(d + 1, d, 1))
    v_d, v_00d, v_0d0 = ints(d), ints(0, 0, 1 if mixed else d), ints(0, 1 if mixed else d, 0)

    @script(PIECES, default_opset=op)
    def coordinates(n, align_corners: int):
        """[n]: (2i + 1 - n) / max(n - align_corners, 1)."""
        odd = op.Range(op.Sub(op.Constant(value=ONE), n), n, op.Constant(value=TWO))
        if early:  # an integer reaches the arithmetic only through another operator's attribute
            kept = op.CumSum(op.Constant(value=V1), op.Constant(value=ZERO), exclusive=align_corners)
            span = op.Add(op.Sub(n, op.Constant(value=ONE)), kept)
        else:
            span = op.Sub(n, op.Constant(value_int=align_corners))
        return op.Div(op.Cast(odd, to=real), op.Max(op.Cast(span, to=real), op.Constant(value=unit)))

    @script(PIECES, default_opset=op)
    def spatial(size):
        """[d]: ([D,] H, W)."""
        return op.Slice(size, op.Constant(value=V2), op.Constant(value=V5))

    @script(PIECES, default_opset=op)
    def axes(size):
        """[1]: d."""
        if mixed:  # noqa: SIM108, ONNXScript has no conditional expression
            result = op.Sub(op.Shape(size), op.Constant(value=V2))
        else:
            result = op.Constant(value=v_d)
        return result

    @script(PIECES, default_opset=op)
    def shape(size):
        """[d + 2]: of the grid, its batch to be copied."""
        return op.Concat(op.Constant(value=V0), spatial(size), axes(size), axis=0)

    @script(PIECES, default_opset=op)
    def rows(size, align_corners: int, compute: int):
        """A."""
        y = coordinates(op.Gather(size, op.Constant(value=Y)), align_corners=align_corners)
        pair = op.Add(op.Mul(y, op.Constant(value=a_y)), op.Constant(value=a_ones))
        if plane:
            transposed = pair
        else:
            depths = size
            if mixed:  # a plane is a volume of depth 1, its z 0
                depths = op.Concat(op.Constant(value=V1), spatial(size), axis=0)
            z = coordinates(op.Gather(depths, op.Constant(value=Z)), align_corners=align_corners)
            column = op.Reshape(z, op.Constant(value=COLUMN))
            transposed = op.Flatten(op.Add(op.Mul(column, op.Constant(value=a_z)), pair), axis=1)
            if mixed:
                transposed = op.Slice(transposed, op.Constant(value=V0), axes(size), op.Constant(value=V0))
        batch = op.Concat(op.Gather(size, op.Constant(value=V0)), op.Constant(value=V11), axis=0)
        if double:  # as in columns
            result = op.Cast(op.Expand(op.Transpose(transposed, perm=[1, 0]), batch), to=compute)
        else:  # in this order ONNX Runtime merges the Transpose into the product
            result = op.Transpose(op.Expand(transposed, batch), perm=[0, 2, 1])
        return result

    @script(PIECES, default_opset=op)
    def columns(theta, size, align_corners: int, compute: int):
        """B."""
        n = op.Gather(size, op.Constant(value=X))
        x = coordinates(n, align_corners=align_corners)
        k = op.Add(op.Mul(x, op.Constant(value=k_x)), op.Constant(value=k_rest))  # [column of theta, row of B, W]
        if mixed:  # columns x, y, 1 and rows 0, 1 for a plane
            d = axes(size)
            head = op.Slice(k, op.Constant(value=V00), op.Concat(d, d, axis=0))
            last = op.Slice(k, op.Constant(value=V30), op.Concat(op.Constant(value=V4), d, axis=0))
            k = op.Concat(head, last, axis=0)
        k = op.Flatten(k, axis=1)
        if double:  # ONNX Runtime 1.17 merges a Transpose into a MatMul of float64, and then has no kernel
            k = op.Cast(k, to=compute)
            product = op.Transpose(op.MatMul(theta, k), perm=[0, 2, 1])
        else:
            product = op.MatMul(op.Transpose(k, perm=[1, 0]), op.Transpose(theta, perm=[0, 2, 1]))
        # No Concat: ONNX Runtime would make a -1 of its only unknown, which fails on an empty batch.
        target = op.Add(op.Mul(n, op.Constant(value=v_00d)), op.Constant(value=v_0d0))
        if mixed:
            target = op.Mul(target, axes(size))
        return op.Reshape(product, target)

    return rows, columns, shape, coordinates, spatial, axes
