"""The grid as a wide product: grid[n] = A @ B[n] with long rows, and no base grid.

    A [D*H, d]      rows (1, y[, z])
    B [n, d, W*d]   rows x_w * theta[:, 0] + theta[:, d], theta[:, 1][, theta[:, 2]], repeated along W

so that (A @ B)[h, (w, c)] = theta[c, 0] * x_w + theta[c, 1] * y_h [+ theta[c, 2] * z_d] + theta[c, d]. B itself is a
product, K^T @ theta^T, whose K is made of x alone. Where `size` is constant ONNX Runtime folds A and K when it loads
the model and four nodes are left: FusedMatMul, Reshape, MatMul, Reshape. A leading axis of A broadcasts size[0].
"""

from __future__ import annotations

import numpy as np
import onnx
from onnxscript import OnnxFunction, script
from onnxscript.values import Opset

from patterns.operators.flat import PIECES, floats, integer, ints

FLOAT = onnx.TensorProto.FLOAT
X, Y, Z = integer(-1), integer(-2), integer(-3)  # where the extents of these axes are in `size`
ONE, TWO, ONE_FLOAT = integer(1), integer(2), floats(1.0)
V0, V1, V2, V3, V4, V5 = (ints(n) for n in range(6))
V00, V01, V02, V03, V11, V30, COLUMN = ints(0, 0), ints(0, 1), ints(0, 2), ints(0, 3), ints(1, 1), ints(3, 0), ints(-1, 1)


def _unit(shape: tuple[int, ...], *ones: tuple[int, ...]) -> onnx.TensorProto:
    array = np.zeros(shape, np.float32)
    array[tuple(zip(*ones))] = 1
    return floats(array)


def pieces(op: Opset, dims: set[int], double: bool) -> dict[str, OnnxFunction]:
    """`rows`, `columns`, `extent` and `shape` for the number of spatial axes in `dims`, and all that they call.

    Args:
        double: whether the attribute `compute` says in which dtype to compute; else it is float32.
    """
    plane, volume, early = dims == {2}, dims == {3}, op.version < 12
    d = 2 if plane else 3
    along_x = _unit((d + 1, d, 1), (0, 0, 0))
    fixed = _unit((d + 1, d, 1), (d, 0, 0), *((k, k, 0) for k in range(1, d)))
    first, second, third = (_unit((d, 1) if plane else (3, 1, 1), (k, 0) if plane else (k, 0, 0)) for k in range(3 if d == 3 else 2)) if d == 3 else (  # noqa
        _unit((2, 1), (0, 0)), _unit((2, 1), (1, 0)), None)
    raise NotImplementedError
