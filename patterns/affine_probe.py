"""What a slice does as a function of the values at a cut: one trial of the proof in `affine_slice`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from patterns.base_grid import BaseGrid, snapped, tolerance
from patterns.size_ratios import Ratios
from rewriter.evaluator import EvaluationError, Evaluator, guard
from rewriter.slices import LinearSlice
from rewriter.vocabulary import Miss

Cut = tuple[ir.Value, ...]
MOST_PARAMETERS = 16  # a sample
FEWEST_PIXELS = 4  # a smaller grid is not worth a node, and too small to tell what made it
SEED = 20260


@dataclasses.dataclass(frozen=True)
class Theta:
    """Where theta comes from: `theta[n] = offset + sum_k parameters[n, k] * matrix[k]`.

    Attributes:
        values: the graph's values that hold the parameters, concatenated.
        counts: how many parameters a sample each holds.
        batched: whether their first axis is the batch.
        matrix: [K, d, d+1], or None where the one value is theta as it stands.
        offset: [d, d+1], or None where it is zero.
        ratios: [1 + K, d, d+1], what offset and matrix are multiplied with by the grid's size; None for nothing.
    """

    values: tuple[ir.Value, ...]
    counts: tuple[int, ...]
    batched: bool
    matrix: np.ndarray | None = None
    offset: np.ndarray | None = None
    ratios: Ratios | None = None

    @property
    def entries(self) -> np.ndarray:
        """[1 + K, d, d+1]: offset, then matrix."""
        offset = np.zeros(self.matrix.shape[1:]) if self.offset is None else self.offset
        return np.concatenate([offset[None], self.matrix])

    def of(self, entries: np.ndarray, ratios: Ratios | None = None) -> Theta:
        """The theta of the same values with these entries."""
        offset = entries[0] if entries[0].any() else None
        return dataclasses.replace(self, matrix=entries[1:], offset=offset, ratios=ratios)

    def at(self, spatial: tuple[int, ...]) -> Theta:
        """What it is for a grid of this spatial shape: without ratios."""
        return self if self.ratios is None else self.of(self.entries * self.ratios.at(spatial))


class Probe:
    """One trial: the slice as a function of the values at the cut."""

    def __init__(self, piece: LinearSlice, evaluator: Evaluator, values: Cut, rank: int, batched: bool):
        self.piece, self.evaluator, self.values, self.rank, self.batched = piece, evaluator, values, rank, batched
        self.name = ", ".join(v.name or "" for v in values)
        self.shapes = [evaluator.shape(v) for v in values]
        batches = {shape[0] if batched else 1 for shape in self.shapes}
        self.batch = max(batches)
        if not self.batch:
            raise EvaluationError(f"{self.name} is empty")
        self.counts = [math.prod(shape) // self.batch for shape in self.shapes]
        self.count = sum(self.counts)
        if len(batches) > 1 or self.count > MOST_PARAMETERS:
            raise EvaluationError(f"{self.name}: {self.count} parameters a sample, batches {sorted(batches)}")
        self.random = np.random.default_rng(SEED)
        self.offset = self._run(np.zeros(guard((self.batch, self.count))))
        self.grid = self.offset.shape
        if len(self.grid) != rank + 2 or self.grid[-1] != rank:
            raise EvaluationError(f"{piece.target.name} has shape {self.grid}, no grid of {rank} coordinates")
        if math.prod(self.grid[1:-1]) < FEWEST_PIXELS:
            raise EvaluationError(f"a grid of {self.grid[1:-1]} is too small to tell")
        if not self.grid[0] or self.batch not in (1, self.grid[0]):
            raise EvaluationError(f"{self.name} has batch {self.batch}, the grid {self.grid[0]}")

    def _run(self, parameters: np.ndarray) -> np.ndarray:
        """The grid for parameters [batch, count]."""
        parts = np.split(parameters, np.cumsum(self.counts)[:-1], axis=1)
        given = {v: part.reshape(shape) for v, part, shape in zip(self.values, parts, self.shapes)}
        return np.asarray(self.evaluator.run(self.piece.target, given), np.float64)

    def tolerance(self, base: BaseGrid) -> float:
        return min(tolerance(self.evaluator.unit), base.spacing() / 4)

    def _scales(self, width: int) -> np.ndarray:
        """[batch, width] factors, all distinct: samples or rows that mix cannot go unnoticed."""
        size = self.batch * width
        return (0.5 + (np.arange(size) + self.random.uniform(0.2, 0.8)) / size).reshape(self.batch, width)

    def as_it_stands(self) -> dict[bool, Theta] | Miss:
        """Whether the slice is the affine grid of `value` itself (of its first rows, where it is square)."""
        rank, rows = self.rank, self.shapes[0][-2]
        bases = {a: BaseGrid(self.grid[1:-1], a) for a in (False, True)}
        worst = dict.fromkeys(bases, float(np.max(np.abs(self.offset), initial=0.0)))
        where = dict.fromkeys(bases, rank)
        for j in range(rank + 1):
            scales = self._scales(rows)
            given = np.zeros((self.batch, rows, rank + 1))
            given[:, :, j] = scales
            field = self._run(given.reshape(self.batch, -1)) - self.offset
            field = field / scales[:, :rank].reshape(self.batch, *(1,) * rank, rank)
            for a, base in bases.items():
                off = float(np.max(np.abs(field - base.column(j)[None, ..., None])))
                if not off <= worst[a]:
                    worst[a], where[a] = off, j
        accepted = {a for a, base in bases.items() if worst[a] <= self.tolerance(base)}
        if len(accepted) == 2 and max(self.grid[1:-1]) > 1:
            near, far = sorted(accepted, key=worst.get)
            if worst[far] < 3 * worst[near]:
                return Miss("its base grid fits both align_corners conventions equally well", self.piece.target.name)
            accepted = {near}
        if not accepted:
            a = min(worst, key=worst.get)
            name = ("x", "y", "z")[where[a]] if where[a] < rank else "homogeneous"
            return Miss(f"its base grid is not affine_grid's: the {name} column is off by {worst[a]:.2g} "
                        f"(align_corners={int(a)})", self.name)
        return {a: Theta(self.values, tuple(self.counts), self.batched) for a in sorted(accepted)}

    def adjusted(self) -> dict[bool, Theta] | Miss:
        """Whether each parameter spans a field that is affine in the coordinates, the same in every sample."""
        rank, bases = self.rank, {a: BaseGrid(self.grid[1:-1], a) for a in (False, True)}
        rows: dict[bool, list[np.ndarray]] = {a: [] for a in bases}
        worst: dict[bool, float] = {}
        for field in self._fields():
            if field is None:
                return Miss("its base grid differs from sample to sample", self.name)
            for a, base in bases.items():
                row = snapped(np.array([base.fit(field[..., i])[0] for i in range(rank)]))
                off = max(base.off(field[..., i], row[i]) for i in range(rank))
                if not off <= self.tolerance(base) * float(np.max(np.abs(field))):
                    worst[a] = off
                rows[a].append(row)
            if len(worst) == len(bases):
                return Miss(f"it is linear in {self.name}, but not affine in the pixel coordinates: "
                            f"off by {max(worst.values()):.2g}", self.name)
        own = Theta(self.values, tuple(self.counts), self.batched)
        found = {a: own.of(np.array(entries)) for a, entries in rows.items() if a not in worst}
        if not any(theta.entries[..., :rank].any() for theta in found.values()):
            return Miss("it is the same at every pixel", self.name)
        # the simpler matrix first; without a difference, the convention of the default
        return dict(sorted(found.items(), key=lambda item: (np.count_nonzero(item[1].matrix), item[0])))

    def _fields(self) -> Iterator[np.ndarray | None]:
        """The field of a sample without parameters, then of each parameter, one at a time: they are as large as the
        grid. None where samples differ."""
        yield self._common(self.offset, np.ones(self.grid[0]))
        for k in range(self.count):
            scales = self._scales(1)[:, 0]
            given = np.zeros((self.batch, self.count))
            given[:, k] = scales
            yield self._common(self._run(given) - self.offset, np.broadcast_to(scales, self.grid[:1]))

    def agrees(self, theta: Theta, align_corners: bool) -> bool:
        """Whether random parameters give the grid that a theta found with other sizes predicts."""
        theta = theta.at(self.grid[1:-1])
        given = self.random.uniform(0.5, 1.5, (self.batch, self.count)) * self.random.choice([-1, 1], self.count)
        if theta.matrix is None:
            rows = given.reshape(self.batch, -1, self.rank + 1)[:, : self.rank]
        else:
            rows = np.einsum("nk,kij->nij", given, theta.matrix)
            rows += 0 if theta.offset is None else theta.offset
        base = BaseGrid(self.grid[1:-1], align_corners)
        wide = (slice(None), *(None,) * self.rank)
        wanted = sum(rows[(*wide, slice(None), j)] * base.column(j)[None, ..., None] for j in range(self.rank + 1))
        off = float(np.max(np.abs(self._run(given) - wanted)))
        return off <= 4 * self.tolerance(base) * max(1.0, float(np.max(np.abs(wanted))))

    def _common(self, field: np.ndarray, scales: np.ndarray) -> np.ndarray | None:
        """The field of one sample, or None if the samples differ by more than rounding."""
        field = field / scales.reshape(-1, *(1,) * (self.rank + 1))
        first = field[0]
        apart = float(np.max(np.abs(field - first), initial=0.0))
        limit = tolerance(self.evaluator.unit) * float(np.max(np.abs(first)))
        return first if apart <= limit else None
