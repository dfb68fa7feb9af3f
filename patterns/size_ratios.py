"""Entries of theta that depend on the grid's size: conventions in pixels multiply and divide by extents.

A coordinate in pixels is an affine function of the normalised one whose coefficients hold n or n - 1, the extent of an
axis; normalising divides by one of them. So every entry is a constant times a / b, of 1, the extents and the extents
less one, and which it is shows when the entries are known at several sizes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from patterns.base_grid import snapped
from rewriter.builder import Builder

NEAR = 2.0**-20  # of the largest entry of the same parameter: what is fitted comes out of float32 arithmetic
Entries = np.ndarray  # [parameters, d, d+1]


@dataclasses.dataclass(frozen=True)
class Ratios:
    """What entries are multiplied with: `over` and `under` index the lengths of `lengths`."""

    over: np.ndarray
    under: np.ndarray

    def at(self, spatial: Sequence[int]) -> np.ndarray:
        """The factors of a grid of this spatial shape."""
        known = lengths(spatial)
        return known[self.over] / known[self.under]

    def __getitem__(self, place) -> Ratios:
        return Ratios(self.over[place], self.under[place])

    def count(self) -> int:
        """How many lengths they hold but 1."""
        return int(np.count_nonzero(self.over) + np.count_nonzero(self.under))


def lengths(spatial: Sequence[int]) -> np.ndarray:
    """1, the extents in order, the extents less one."""
    return np.array([1, *spatial, *(n - 1 for n in spatial)], np.float64)


def fit(observed: Sequence[tuple[Sequence[int], Entries]]) -> tuple[Entries, Ratios] | None:
    """Constants and ratios that give all the entries observed, each at a spatial shape; the simplest that do.

    None where an entry is no constant times a ratio.
    """
    entries = np.stack([seen for _, seen in observed])
    known = np.stack([lengths(spatial) for spatial, _ in observed])  # [T, lengths]
    limit = NEAR * np.max(np.abs(entries), axis=(-1, -2), keepdims=True)
    constants, over, under = np.zeros(entries.shape[1:]), *(np.zeros(entries.shape[1:], int) for _ in "ab")
    missing = np.ones(constants.shape, bool)
    pairs = sorted(itertools.product(range(known.shape[1]), repeat=2), key=lambda pair: (np.count_nonzero(pair), pair))
    for a, b in pairs:
        if not missing.any():
            break
        if not known[:, [a, b]].all():
            continue  # an axis of length 1
        factors = (known[:, a] / known[:, b]).reshape(-1, *(1,) * constants.ndim)
        constant = np.mean(entries / factors, axis=0)
        fits = missing & np.all(np.abs(entries - constant * factors) <= limit, axis=0)
        constants[fits], over[fits], under[fits] = constant[fits], a, b
        missing &= ~fits
    return None if missing.any() else (np.array([snapped(own) for own in constants]), Ratios(over, under))


class Factors:
    """Emits arrays of factors, those that depend on the size too; the lengths are emitted once.

    Args:
        size: the size operand (N, C, [D,] H, W) of the grid, int64.
    """

    def __init__(self, builder: Builder, size: ir.Value, dtype: ir.DataType):
        self._builder, self._size, self._dtype = builder, size, dtype
        self._lengths: ir.Value | None = None

    def emit(self, constants: np.ndarray, ratios: Ratios | None, name: str) -> ir.Value:
        """constants * ratios, of the shape of `constants`."""
        value = self._builder.constant(constants.astype(self._dtype.numpy()), name)
        for op_type, places in () if ratios is None else (("Mul", ratios.over), ("Div", ratios.under)):
            if places.any():
                places = self._builder.constant(places, "lengths")
                value = self._builder.op(op_type, [value, self._builder.op("Gather", [self._known(), places], axis=0)])
        return value

    def _known(self) -> ir.Value:
        if self._lengths is None:
            build, one = self._builder, self._builder.constant(np.ones(1, self._dtype.numpy()), "one")
            extents = build.op("Cast", [self._size], dtype=self._dtype, to=int(self._dtype))
            extents = build.op("Slice", [extents, build.constant(np.array([2]), "start"),
                                         build.constant(np.array([2**31 - 1]), "end")])
            self._lengths = build.op("Concat", [one, extents, build.op("Sub", [extents, one])], axis=0)
        return self._lengths
