"""Proving that a linear slice is an affine grid: the search for theta, and the proof.

A slice is an affine function of the values at any cut through it, so evaluating it on a basis gives that function
exactly; for static sizes the outcome is a proof, not a sample. It is an affine grid of theta [N, d, d+1] when the
field that each parameter spans is affine in the base grid's coordinates, in every sample alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from patterns.base_grid import BaseGrid, tolerance
from rewriter.evaluator import EvaluationError, Evaluator
from rewriter.scopes import Scope
from rewriter.slices import LinearSlice
from rewriter.trials import trials
from rewriter.vocabulary import Miss

MOST_PARAMETERS = 16  # a sample
FEWEST_PIXELS = 4  # a smaller grid is not worth a node, and too small to tell what made it
SEED = 20260


@dataclasses.dataclass(frozen=True)
class Theta:
    """Where theta comes from: `theta[n] = offset + sum_k parameters[n, k] * matrix[k]`.

    Attributes:
        value: the graph's value that holds the parameters.
        batched: whether its first axis is the batch.
        matrix: [K, d, d+1], or None where `value` is theta as it stands.
        offset: [d, d+1], or None where it is zero.
    """

    value: ir.Value
    batched: bool
    matrix: np.ndarray | None = None
    offset: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Proof:
    """A slice proven to be an affine grid.

    Attributes:
        theta, rank, align_corners: of which theta, of how many coordinates, on which base.
        trials: the evaluators it was proven under, and `shapes` the grid's shape under each.
        batch_is_thetas: whether the grid's batch is theta's under every trial (else it is broadcast to another).
    """

    theta: Theta
    rank: int
    align_corners: bool
    trials: tuple[Evaluator, ...]
    shapes: tuple[tuple[int, ...], ...]
    batch_is_thetas: bool


def prove(piece: LinearSlice, scope: Scope, rank: int) -> Proof | Miss:
    """Find the cut nearest to the grid that proves, theta as it stands before an adjusted one."""
    closest: Miss | None = None
    for value, form, batched in _candidates(piece, scope, rank):
        outcome = _prove_cut(piece, scope, rank, value, form, batched)
        if isinstance(outcome, Proof):
            return outcome
        closest = closest or outcome
    if closest is not None:
        return closest
    leaf, reason = next(((v, r) for v, r in piece.leaves.items()), (piece.target, "nothing small feeds it"))
    return Miss(f"the grid is no affine function of few parameters: it is computed from {leaf.name} ({reason})",
                leaf.name or "")


def _candidates(piece: LinearSlice, scope: Scope, rank: int) -> Iterator[tuple[ir.Value, str, bool]]:
    """Cuts to try, with how and whether their first axis is the batch: theta-shaped values first, then homogeneous
    matrices, then anything small; near before far."""
    small: list[tuple[ir.Value, tuple]] = []
    for value in piece.order:
        shape = scope.measured_shape(value)
        if value is piece.target or shape is None or _looks_like_grid(shape, rank):
            continue
        per_sample = shape[1:] if len(shape) > 1 else shape
        if all(isinstance(d, int) for d in per_sample) and np.prod(per_sample) <= MOST_PARAMETERS:
            small.append((value, shape))
    small = [(value, shape) for value, shape in small if piece.is_cut({value})]
    theta, matrix = (rank, rank + 1), (rank + 1, rank + 1)
    for wanted in (theta, matrix):
        yield from ((v, "as it stands", len(shape) == 3) for v, shape in small
                    if shape[-2:] == wanted and len(shape) in (2, 3))
    for value, shape in sorted(small, key=lambda item: item[1][-2:] not in (theta, matrix)):
        if len(shape) > 1:
            yield value, "adjusted", True
        if shape[:1] != (1,) and all(isinstance(d, int) for d in shape) and np.prod(shape) <= MOST_PARAMETERS:
            yield value, "adjusted", False


def _looks_like_grid(shape: tuple, rank: int) -> bool:
    return len(shape) == rank + 2 and shape[-1] == rank


def _prove_cut(piece: LinearSlice, scope: Scope, rank: int, value: ir.Value, form: str,
               batched: bool) -> Proof | Miss:
    tried = trials(scope, [*piece.structural, value])
    found: dict[bool, Theta] = {}
    shapes, batches = [], []
    try:
        for evaluator in tried:
            probe = _Probe(piece, evaluator, value, rank, batched)
            shapes.append(probe.grid)
            batches.append(probe.batch)
            here = probe.as_it_stands() if form == "as it stands" else probe.adjusted()
            if isinstance(here, Miss):
                return here
            found = here if not found else _agreeing(found, here)
            if not found:
                return Miss("the matrix that turns its parameters into theta depends on the size", value.name or "")
    except EvaluationError as error:
        return Miss(f"it cannot be evaluated: {error}", value.name or "")
    align_corners = next(iter(found))
    same_batch = all(grid[0] == batch for grid, batch in zip(shapes, batches))
    return Proof(found[align_corners], rank, align_corners, tuple(tried), tuple(shapes), same_batch)


def _agreeing(a: dict[bool, Theta], b: dict[bool, Theta]) -> dict[bool, Theta]:
    """The conventions under which two trials found the same theta."""

    def equal(x, y):
        return (x is None) == (y is None) and (x is None or np.allclose(x, y, rtol=0, atol=2.0**-20))

    return {k: a[k] for k in a if k in b and a[k].batched == b[k].batched
            and equal(a[k].matrix, b[k].matrix) and equal(a[k].offset, b[k].offset)}


class _Probe:
    """One trial: the slice as a function of the values at the cut."""

    def __init__(self, piece: LinearSlice, evaluator: Evaluator, value: ir.Value, rank: int, batched: bool):
        self.piece, self.evaluator, self.value, self.rank = piece, evaluator, value, rank
        self.shape = evaluator.shape(value)
        self.offset = self._run(np.zeros(self.shape))
        self.grid = self.offset.shape
        if len(self.grid) != rank + 2 or self.grid[-1] != rank:
            raise EvaluationError(f"{piece.target.name} has shape {self.grid}, no grid of {rank} coordinates")
        if int(np.prod(self.grid[1:-1])) < FEWEST_PIXELS:
            raise EvaluationError(f"a grid of {self.grid[1:-1]} is too small to tell")
        self.batched = batched
        self.batch = self.shape[0] if batched else 1
        if self.batch not in (1, self.grid[0]):
            raise EvaluationError(f"{value.name} has batch {self.batch}, the grid {self.grid[0]}")
        self.count = int(np.prod(self.shape)) // self.batch
        if self.count > MOST_PARAMETERS:
            raise EvaluationError(f"{value.name} holds {self.count} parameters a sample")
        self.random = np.random.default_rng(SEED)

    def _run(self, given: np.ndarray) -> np.ndarray:
        return np.asarray(self.evaluator.run(self.piece.target, {self.value: given}), np.float64)

    def tolerance(self, base: BaseGrid) -> float:
        return min(tolerance(self.evaluator.unit), base.spacing() / 4)

    def _scales(self, width: int) -> np.ndarray:
        """[batch, width] factors, all distinct: samples or rows that mix cannot go unnoticed."""
        size = self.batch * width
        return (0.5 + (np.arange(size) + self.random.uniform(0.2, 0.8)) / size).reshape(self.batch, width)

    def as_it_stands(self) -> dict[bool, Theta] | Miss:
        """Whether the slice is the affine grid of `value` itself (of its first rows, where it is square)."""
        rank, rows = self.rank, self.shape[-2]
        bases = {a: BaseGrid(self.grid[1:-1], a) for a in (False, True)}
        worst = dict.fromkeys(bases, float(np.max(np.abs(self.offset), initial=0.0)))
        where = dict.fromkeys(bases, rank)
        for j in range(rank + 1):
            scales = self._scales(rows)
            given = np.zeros((self.batch, rows, rank + 1))
            given[:, :, j] = scales
            field = self._run(given.reshape(self.shape)) - self.offset
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
                        f"(align_corners={int(a)})", self.value.name or "")
        return {a: Theta(self.value, self.batched) for a in sorted(accepted)}

    def adjusted(self) -> dict[bool, Theta] | Miss:
        """Whether each parameter spans a field that is affine in the coordinates, the same in every sample."""
        rank, count = self.rank, self.count
        fields = [self._common(self.offset, np.ones(self.grid[0]))]
        for k in range(count):
            scales = self._scales(1)[:, 0]
            given = np.zeros((self.batch, count))
            given[:, k] = scales
            field = self._run(given.reshape(self.shape)) - self.offset
            fields.append(self._common(field, np.broadcast_to(scales, self.grid[:1])))
        if any(f is None for f in fields):
            return Miss("its base grid differs from sample to sample", self.value.name or "")
        found = {}
        worst = 0.0
        for a in (False, True):
            base = BaseGrid(self.grid[1:-1], a)
            fits = [[base.fit(field[..., i]) for i in range(rank)] for field in fields]
            allowed = [self.tolerance(base) * max(1.0, float(np.abs(field).max())) for field in fields]
            off = max(residual / limit for row, limit in zip(fits, allowed) for _, residual in row)
            if off <= 1:
                matrix = np.array([[_snapped(c) for c, _ in row] for row in fits])
                found[a] = Theta(self.value, self.batched, matrix[1:], matrix[0] if matrix[0].any() else None)
            else:
                worst = max(worst, max(residual for row in fits for _, residual in row))
        if not found:
            return Miss(f"it is linear in {self.value.name}, but not affine in the pixel coordinates: "
                        f"off by {worst:.2g}", self.value.name or "")
        if not any(t.matrix.any() for t in found.values()):
            return Miss("it does not depend on its parameters", self.value.name or "")
        # the simpler matrix first; without a difference, the convention of the default
        return dict(sorted(found.items(), key=lambda item: (np.count_nonzero(item[1].matrix), item[0])))

    def _common(self, field: np.ndarray, scales: np.ndarray) -> np.ndarray | None:
        """The field of one sample, or None if the samples differ by more than rounding."""
        field = field / scales.reshape(-1, *(1,) * (self.rank + 1))
        first = field[0]
        apart = float(np.max(np.abs(field - first), initial=0.0))
        limit = tolerance(self.evaluator.unit) * max(1.0, float(np.max(np.abs(first), initial=0.0)))
        return first if apart <= limit else None


def _snapped(coefficients: np.ndarray) -> np.ndarray:
    """Fitted coefficients with the rounding of the base removed where they are whole numbers."""
    whole = np.rint(coefficients)
    return np.where(np.abs(coefficients - whole) <= 2.0**-21, whole, coefficients)
