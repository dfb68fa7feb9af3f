"""The base grid of an affine grid, and the fit of a field to it.

The normalised coordinate of index i on an axis of length n is (2i + 1 - n) / max(n - a, 1), a = align_corners:
torch.nn.functional.affine_grid's, and 0 on an axis of length 1. Every axis is symmetric about 0, so on the product
grid the functions x, y, (z,) 1 are orthogonal and a least-squares fit needs no solver: a coefficient is a projection.
"""

from __future__ import annotations

import dataclasses

import numpy as np


def axis_coordinates(length: int, align_corners: bool) -> np.ndarray:
    """[length] float64 coordinates in [-1, 1]."""
    return (2 * np.arange(length, dtype=np.float64) + 1 - length) / max(length - align_corners, 1)


@dataclasses.dataclass(frozen=True)
class BaseGrid:
    """Columns (x, y[, z], 1) over a spatial shape ([H, W] or [D, H, W])."""

    spatial: tuple[int, ...]
    align_corners: bool

    @property
    def rank(self) -> int:
        return len(self.spatial)

    def column(self, j: int) -> np.ndarray:
        """Column j, shaped to broadcast over the spatial shape (x varies along the last axis)."""
        if j == self.rank:
            return np.ones((1,) * self.rank)
        axis = self.rank - 1 - j
        shape = [1] * self.rank
        shape[axis] = self.spatial[axis]
        return axis_coordinates(self.spatial[axis], self.align_corners).reshape(shape)

    def fit(self, field: np.ndarray) -> tuple[np.ndarray, float]:
        """(coefficients [rank + 1], largest residual) of a field of the spatial shape."""
        coefficients = np.zeros(self.rank + 1)
        residual = np.array(field, np.float64)
        axes = range(self.rank)
        for j in range(self.rank + 1):
            column = self.column(j)
            along = tuple(a for a in axes if column.shape[a] == 1)
            means = residual.mean(axis=along, keepdims=True)
            norm = float((column**2).mean())
            coefficients[j] = float((means * column).mean()) / norm if norm else 0.0
            residual = residual - coefficients[j] * column
        return coefficients, float(np.max(np.abs(residual), initial=0.0))

    def off(self, field: np.ndarray, coefficients: np.ndarray) -> float:
        """The largest distance of a field from the one that coefficients make."""
        made = sum(c * self.column(j) for j, c in enumerate(coefficients))
        return float(np.max(np.abs(field - made), initial=0.0))

    def spacing(self) -> float:
        """The smallest distance of neighbouring coordinates."""
        return min(2.0 / max(n - self.align_corners, 1) for n in self.spatial)


def tolerance(unit: float) -> float:
    """How far a computed base coordinate may lie from the ideal one, by the rounding unit of its coarsest dtype.

    Residuals measured on real exports reach 0.86 * 2^-23 for float32 and 0.53 * 2^-10 for float16.
    """
    if unit >= 2.0**-11:  # half types: one ulp
        return 2 * unit
    if unit >= 2.0**-24:  # float32: four ulp
        return 8 * unit
    return 2.0**-50  # float64, or exact


def snapped(coefficients: np.ndarray) -> np.ndarray:
    """Fitted coefficients of one parameter with the rounding of the base removed: whole numbers, and zeros beside the
    largest of them."""
    whole, scale = np.rint(coefficients), np.max(np.abs(coefficients))
    near = 2.0**-21 * np.where(whole == 0, scale, np.abs(whole))
    return np.where(np.abs(coefficients - whole) <= near, whole, coefficients)
