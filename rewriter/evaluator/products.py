"""Products: MatMul, Gemm, Einsum, and the affine grid itself."""

from __future__ import annotations

import numpy as np

from rewriter.evaluator.table import guard, one, operator, within


def _matmul(a, b):
    if a.ndim > 1 and b.ndim > 1:
        guard((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))
    return np.matmul(a, b)


@operator("MatMul", linear=one)
def _mat_mul(call):
    return _matmul(*call.inputs)


@operator("FusedMatMul", linear=one, domain="com.microsoft")
def _fused_matmul(call):
    a, b = call.inputs
    a = np.moveaxis(a, 0, -2) if call.attr("transBatchA", 0) else a
    b = np.moveaxis(b, 0, -2) if call.attr("transBatchB", 0) else b
    a = a.swapaxes(-1, -2) if call.attr("transA", 0) else a
    b = b.swapaxes(-1, -2) if call.attr("transB", 0) else b
    return _matmul(a, b) * a.dtype.type(call.attr("alpha", 1.0))


@operator("Gemm", linear=lambda carriers: not {0, 1} <= carriers)
def _gemm(call):
    a, b = call.inputs[:2]
    a = a.T if call.attr("transA", 0) else a
    b = b.T if call.attr("transB", 0) else b
    guard((a.shape[0], b.shape[1]))
    product = a @ b * np.asarray(call.attr("alpha", 1.0), a.dtype)
    return product if call.get(2) is None else product + call.inputs[2] * np.asarray(call.attr("beta", 1.0), a.dtype)


@operator("Einsum", linear=one)
def _einsum(call):
    equation = call.attr("equation").replace(" ", "")
    sizes = {}
    for labels, array in zip(equation.split("->")[0].split(","), call.inputs):
        if "." not in labels:
            sizes.update(zip(labels, array.shape))
    if "->" in equation and "." not in equation:
        guard(sizes[label] for label in equation.split("->")[1])
    return np.einsum(equation, *call.inputs)


@operator("AffineGrid", linear=within(0))
def _affine_grid(call):
    """ai.onnx AffineGrid: as its reference does, an axis of length 1 lies at -1 under align_corners=1."""
    theta, size = call.inputs
    spatial = guard(size[2:])
    axes = []
    for length in spatial:
        step = np.arange(length, dtype=np.float64)
        if call.attr("align_corners", 0):
            axes.append(-1 + step * (2 / (length - 1) if length > 1 else 0))
        else:
            axes.append((2 * step + 1) / length - 1)
    base = np.stack([*reversed(np.meshgrid(*axes, indexing="ij")), np.ones(spatial)], axis=-1)
    guard((*theta.shape[:1], *base.shape))
    flat = np.matmul(base.reshape(-1, base.shape[-1]), theta.swapaxes(1, 2))
    return flat.reshape(theta.shape[0], *spatial, len(spatial))
