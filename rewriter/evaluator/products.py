"""Products: MatMul, Gemm, Einsum, and the affine grid itself."""

from __future__ import annotations

import numpy as np

from rewriter.evaluator.table import EvaluationError, guard, guard_work, one, operator, within


def _matmul(call, a, b):
    batch, columns = np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), b.shape[-1:] if b.ndim > 1 else ()
    guard_work(call, (*guard((*batch, *a.shape[-2:-1], *columns)), a.shape[-1]))
    return np.matmul(a, b)


@operator("MatMul", linear=one)
def _mat_mul(call):
    return _matmul(call, *call.inputs)


@operator("FusedMatMul", linear=one, domain="com.microsoft")
def _fused_matmul(call):
    a, b = call.inputs
    a = np.moveaxis(a, 0, -2) if call.attr("transBatchA", 0) else a
    b = np.moveaxis(b, 0, -2) if call.attr("transBatchB", 0) else b
    a = a.swapaxes(-1, -2) if call.attr("transA", 0) else a
    b = b.swapaxes(-1, -2) if call.attr("transB", 0) else b
    return _matmul(call, a, b) * a.dtype.type(call.attr("alpha", 1.0))


@operator("Gemm", linear=lambda carriers: not {0, 1} <= carriers)
def _gemm(call):
    a, b = call.inputs[:2]
    a = a.T if call.attr("transA", 0) else a
    b = b.T if call.attr("transB", 0) else b
    alpha, beta = call.attr("alpha", 1.0), call.attr("beta", 1.0)
    product = _matmul(call, a, b)
    if product.dtype.kind in "iu" and (alpha, beta) != (1.0, 1.0):
        raise EvaluationError("Gemm of integers with a factor")
    product = product * product.dtype.type(alpha)
    if call.get(2) is None:
        return product
    return product + np.broadcast_to(call.inputs[2], product.shape) * product.dtype.type(beta)


@operator("Einsum", linear=one)
def _einsum(call):
    equation = call.attr("equation").replace(" ", "")
    terms, arrow, result = equation.partition("->")
    sizes: dict[str, int] = {}
    batch: tuple[int, ...] = ()  # what the ellipses stand for
    for term, array in zip(terms.split(","), call.inputs):
        left, _, right = term.partition("...")
        start, stop = len(left), array.ndim - len(right)
        batch = np.broadcast_shapes(batch, array.shape[start:stop])
        for label, size in zip(left + right, array.shape[:start] + array.shape[stop:]):
            sizes[label] = max(size, sizes.get(label, 0))
    kept = result.replace("...", "") if arrow else [label for label in sizes if terms.count(label) == 1]
    guard((*batch, *(sizes[label] for label in kept)))
    guard_work(call, (*batch, *sizes.values()))
    return np.einsum(equation, *call.inputs)


@operator("AffineGrid", linear=within(0))
def _affine_grid(call):
    """ai.onnx AffineGrid: index i on an axis of length n lies at (2i + 1 - n) / (n - align_corners)."""
    theta, size = call.inputs
    if size.ndim != 1:
        raise EvaluationError(f"the size has {size.ndim} dims, not 1")
    spatial, corners = tuple(int(n) for n in size[2:]), call.attr("align_corners", 0)
    guard((theta.shape[0], *spatial, len(spatial) + 1))
    if corners not in (0, 1):
        raise EvaluationError(f"align_corners is {corners}, neither 0 nor 1")
    if corners and 1 in spatial:
        raise EvaluationError("AffineGrid with align_corners on an axis of length 1: -1, 0 or 1, as the runtime likes")
    axes = [(2 * np.arange(n, dtype=np.float64) + 1 - n) / (n - corners) for n in spatial]
    base = np.stack([*reversed(np.meshgrid(*axes, indexing="ij")), np.ones(spatial)], axis=-1)
    flat = np.matmul(base.reshape(-1, base.shape[-1]), theta.swapaxes(1, 2))
    return flat.reshape(theta.shape[0], *spatial, len(spatial)).astype(theta.dtype)
