"""GridSample in numpy and float64, for tests."""

from __future__ import annotations

import itertools

import numpy as np

CUBIC = -0.75


def grid_sample(x: np.ndarray, grid: np.ndarray, *, mode: str = "linear", padding_mode: str = "zeros",
                align_corners: int = 0) -> np.ndarray:
    """`ai.onnx::GridSample` in float64. Ties of nearest go to even.

    Args:
        x: [N, C, H_in, W_in] or [N, C, D_in, H_in, W_in].
        grid: [N, H, W, 2] or [N, D, H, W, 3], last axis (x, y[, z]).
        mode: "linear" ("bilinear"), "nearest", or "cubic" ("bicubic").

    Returns:
        [N, C, H, W] or [N, C, D, H, W].
    """
    x, grid = np.asarray(x, np.float64), np.asarray(grid, np.float64)
    extents = x.shape[2:]
    axes = []  # for every spatial axis the taps: (index [N, ...], is it inside, weight)
    for axis, n in enumerate(extents):
        g = grid[..., -1 - axis]
        position = (g + 1) / 2 * (n - 1) if align_corners else ((g + 1) * n - 1) / 2
        axes.append([_padded(index, weight, n, padding_mode, align_corners) for index, weight in _taps(position, mode)])
    result = np.zeros((*grid.shape[:1], x.shape[1], *grid.shape[1:-1]))
    for taps in itertools.product(*axes):
        weight = np.prod([w for _, w in taps], axis=0)
        for sample in range(len(x)):
            index = tuple(i[sample] for i, _ in taps)
            result[sample] += x[sample][(slice(None), *index)] * weight[sample]
    return result


def _taps(position: np.ndarray, mode: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """(index, weight) of the pixels of one axis that a position reads."""
    if mode == "nearest":
        return [(np.rint(position), np.ones_like(position))]
    first = np.floor(position)
    t = position - first
    if mode in ("linear", "bilinear"):
        return [(first, 1 - t), (first + 1, t)]
    return [(first + k, _cubic(np.abs(t - k))) for k in (-1, 0, 1, 2)]


def _cubic(s: np.ndarray) -> np.ndarray:
    """Keys' kernel at distance s (R. Keys, "Cubic convolution interpolation for digital image processing", 1981)."""
    near = ((CUBIC + 2) * s - (CUBIC + 3)) * s * s + 1
    far = ((CUBIC * s - 5 * CUBIC) * s + 8 * CUBIC) * s - 4 * CUBIC
    return np.where(s <= 1, near, far)


def _padded(index: np.ndarray, weight: np.ndarray, n: int, padding_mode: str, align_corners: int):
    """(index in 0..n-1, weight), a pixel outside replaced as the padding mode says."""
    if padding_mode == "reflection":
        if align_corners:  # about the centres of the outermost pixels
            period = max(2 * (n - 1), 1)
            index = np.abs(np.mod(index + n - 1, period) - (n - 1)) if n > 1 else 0 * index
        else:  # about the borders
            index = np.mod(index, 2 * n)
            index = np.minimum(index, 2 * n - 1 - index)
    elif padding_mode == "zeros":
        weight = np.where((index >= 0) & (index <= n - 1), weight, 0)
    return np.clip(index, 0, n - 1).astype(np.int64), weight
