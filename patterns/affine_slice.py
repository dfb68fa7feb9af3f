"""Proving that a linear slice is an affine grid: the search for theta, and the proof.

A slice is an affine function of the values at any cut through it, so evaluating it on a basis gives that function
exactly; for static sizes the outcome is a proof, not a sample. It is an affine grid of theta [N, d, d+1] when the
field that each parameter spans is affine in the base grid's coordinates, in every sample alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from patterns.base_grid import BaseGrid, tolerance
from rewriter.evaluator import EvaluationError, Evaluator
from rewriter.graphs import graph_inputs
from rewriter.scopes import Scope
from rewriter.slices import LinearSlice
from rewriter.trials import beyond_trial, symbols, trials
from rewriter.vocabulary import Miss

MOST_PARAMETERS = 16  # a sample
MOST_VALUES = 6  # of a cut of several
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
    """

    values: tuple[ir.Value, ...]
    counts: tuple[int, ...]
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


def prove(piece: LinearSlice, scope: Scope, rank: int) -> Proof | Miss | None:
    """Find the cut nearest to the grid that proves, theta as it stands before an adjusted one.

    None where no cut is small enough to be worth a proof.
    """
    closest: Miss | None = None
    if (node := beyond_trial(scope, piece.structural)) is not None:
        return Miss(f"its sizes go through {node.op_type}, which no number of tried sizes can prove", node.name or "")
    for values, form, batched in _candidates(piece, scope, rank):
        outcome = _prove_cut(piece, scope, rank, values, form, batched)
        if isinstance(outcome, Proof):
            return outcome
        closest = closest or outcome  # the nearest theta-shaped one says most
    return closest


Cut = tuple[ir.Value, ...]


def _candidates(piece: LinearSlice, scope: Scope, rank: int) -> Iterator[tuple[Cut, str, bool]]:
    """Cuts to try, with how, and whether their first axis is the batch: theta-shaped values first, then homogeneous
    matrices, then anything small, then several small values together; near before far."""
    sizes: dict[ir.Value, tuple] = {}
    for value in piece.order:
        if value is not piece.target and scope.visible(value):
            shape = scope.measured_shape(value)
            if shape is not None and not (len(shape) == rank + 2 and shape[-1] == rank) and _few(shape):
                sizes[value] = shape
    single = [(value, shape) for value, shape in sizes.items() if piece.is_cut({value})]
    theta, matrix = (rank, rank + 1), (rank + 1, rank + 1)
    for wanted in (theta, matrix):
        yield from (((v,), "as it stands", len(shape) == 3) for v, shape in single
                    if shape[-2:] == wanted and len(shape) in (2, 3))
    for value, shape in sorted(single, key=lambda item: item[1][-2:] not in (theta, matrix)):
        yield from (((value,), "adjusted", batched) for batched in _readings([shape]))
    for several in dict.fromkeys((_frontier(piece, sizes), tuple(piece.leaves))):
        if 1 < len(several) <= MOST_VALUES and all(v in sizes for v in several):
            yield from ((several, "adjusted", batched) for batched in _readings([sizes[v] for v in several]))


def may_be_parameters(shape: tuple | None) -> bool:
    """Whether a value of this shape can hold parameters, few a sample; True where the shape is not known."""
    per_sample = shape[1:] if shape is not None and len(shape) > 1 else ()
    return not all(isinstance(d, int) for d in per_sample) or _few(shape or ())


def _few(shape: tuple) -> bool:
    per_sample = shape[1:] if len(shape) > 1 else ()
    return all(isinstance(d, int) for d in per_sample) and np.prod(per_sample) <= MOST_PARAMETERS


def _readings(shapes: list[tuple]) -> list[bool]:
    """Whether the first axes may be the batch, and whether they may not."""
    dims = [d for shape in shapes for d in shape]
    few = all(isinstance(d, int) for d in dims) and sum(int(np.prod(shape)) for shape in shapes) <= MOST_PARAMETERS
    return [True] * all(shapes) + [False] * (few and any(shape[:1] != (1,) for shape in shapes))


def _frontier(piece: LinearSlice, sizes: dict[ir.Value, tuple]) -> Cut:
    """The nearest small values that together are a cut; () where some path has none."""
    stack, seen, cut = [piece.target], set(), {}
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in sizes and (len(sizes[value]) == 3 or np.prod(sizes[value][1:]) <= 4):
            cut[value] = None
        elif value in piece.leaves:
            return ()
        else:
            stack.extend(reversed(piece.feeds[value]))
    return tuple(cut)


def _prove_cut(piece: LinearSlice, scope: Scope, rank: int, values: Cut, form: str,
               batched: bool) -> Proof | Miss | None:
    tried = trials(scope, [*piece.structural, *values])
    if batched and len(tried) > 1 and not _same_batch(values, piece.structural, scope):
        tried += _with_batch_one(tried[0], values)
    proven: list[tuple[Evaluator, _Probe]] = []
    found: dict[bool, Theta] = {}
    name = ", ".join(v.name or "" for v in values)
    for evaluator in tried:
        try:
            probe = _Probe(piece, evaluator, values, rank, batched)
            if evaluator.optional:
                if min(probe.grid[1:-1]) == 1:
                    continue  # see the README on axes of length 1
                found = {a: theta for a, theta in found.items() if probe.agrees(theta, a)}
                here: dict[bool, Theta] | Miss = found
            else:
                here = probe.as_it_stands() if form == "as it stands" else probe.adjusted()
        except EvaluationError as error:
            if evaluator.optional and not _changes_rank(values, evaluator, tried[0]):
                continue  # the graph itself cannot run so
            return Miss(f"it cannot be evaluated: {error}", name) if proven else None
        if isinstance(here, Miss):
            return here
        found = _agreeing(found, here) if proven else here
        if not found:
            return Miss("sizes change more than the base grid that its parameters are multiplied with", name)
        proven.append((evaluator, probe))
    align_corners = next(iter(found))
    return Proof(found[align_corners], rank, align_corners, tuple(e for e, _ in proven),
                 tuple(p.grid for _, p in proven), all(p.grid[0] == p.batch for _, p in proven))


def _changes_rank(values: Cut, evaluator: Evaluator, usual: Evaluator) -> bool:
    """Whether a parameter has another rank with these sizes (a Squeeze without axes, say)."""
    try:
        return any(len(evaluator.shape(v)) != len(usual.shape(v)) for v in values)
    except EvaluationError:
        return False


def _same_batch(values: Cut, structural: Sequence[ir.Value], scope: Scope) -> bool:
    """Whether the parameters' batch is, by what makes them, the very one that the sizes hold."""
    if not graph_inputs(structural):
        return True
    batches = {shape[0] if (shape := scope.shape(v)) else None for v in values}
    sizes = {name for name, is_batch in symbols(scope, structural)[0].items() if is_batch}
    return batches == sizes and not any(v.is_graph_input() for v in values)


def _with_batch_one(evaluator: Evaluator, values: Cut) -> list[Evaluator]:
    """A trial in which parameters of batch 1 meet a larger batch: symbols that are declared equal may differ at run
    time, and then the grid's batch must not be taken from the parameters."""
    try:
        assumed = {value: (1, *evaluator.shape(value)[1:]) for value in values}
    except EvaluationError:
        return []
    return [Evaluator(evaluator.scope, evaluator.sizes, assumed)]


def _agreeing(a: dict[bool, Theta], b: dict[bool, Theta]) -> dict[bool, Theta]:
    """The conventions under which two trials found the same theta."""

    def equal(x, y):
        if x is None or y is None:
            return x is y
        scale = np.max(np.abs(x), axis=(-1, -2), keepdims=True)  # of each parameter
        return bool(np.all(np.abs(x - y) <= 2.0**-20 * scale))

    return {k: a[k] for k in a if k in b and equal(a[k].matrix, b[k].matrix) and equal(a[k].offset, b[k].offset)}


class _Probe:
    """One trial: the slice as a function of the values at the cut."""

    def __init__(self, piece: LinearSlice, evaluator: Evaluator, values: Cut, rank: int, batched: bool):
        self.piece, self.evaluator, self.values, self.rank, self.batched = piece, evaluator, values, rank, batched
        self.name = ", ".join(v.name or "" for v in values)
        self.shapes = [evaluator.shape(v) for v in values]
        batches = {shape[0] if batched else 1 for shape in self.shapes}
        self.batch = max(batches)
        if not self.batch:
            raise EvaluationError(f"{self.name} is empty")
        self.counts = [int(np.prod(shape)) // self.batch for shape in self.shapes]
        self.count = sum(self.counts)
        if len(batches) > 1 or self.count > MOST_PARAMETERS:
            raise EvaluationError(f"{self.name}: {self.count} parameters a sample, batches {sorted(batches)}")
        self.random = np.random.default_rng(SEED)
        self.offset = self._run(np.zeros((self.batch, self.count)))
        self.grid = self.offset.shape
        if len(self.grid) != rank + 2 or self.grid[-1] != rank:
            raise EvaluationError(f"{piece.target.name} has shape {self.grid}, no grid of {rank} coordinates")
        if int(np.prod(self.grid[1:-1])) < FEWEST_PIXELS:
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
        rank, count = self.rank, self.count
        fields = [self._common(self.offset, np.ones(self.grid[0]))]
        for k in range(count):
            scales = self._scales(1)[:, 0]
            given = np.zeros((self.batch, count))
            given[:, k] = scales
            field = self._run(given) - self.offset
            fields.append(self._common(field, np.broadcast_to(scales, self.grid[:1])))
        if any(f is None for f in fields):
            return Miss("its base grid differs from sample to sample", self.name)
        found = {}
        worst = 0.0
        for a in (False, True):
            base = BaseGrid(self.grid[1:-1], a)
            fits = [[base.fit(field[..., i]) for i in range(rank)] for field in fields]
            allowed = [self.tolerance(base) * float(np.max(np.abs(field))) for field in fields]
            if all(residual <= limit for row, limit in zip(fits, allowed) for _, residual in row):
                offset, *matrix = (_snapped(np.array([c for c, _ in row])) for row in fits)
                found[a] = Theta(self.values, tuple(self.counts), self.batched, np.array(matrix),
                                 offset if offset.any() else None)
            else:
                worst = max(worst, max(residual for row in fits for _, residual in row))
        if not found:
            return Miss(f"it is linear in {self.name}, but not affine in the pixel coordinates: "
                        f"off by {worst:.2g}", self.name)
        if not any(t.matrix[..., :rank].any() or (t.offset is not None and t.offset[:, :rank].any())
                   for t in found.values()):
            return Miss("it is the same at every pixel", self.name)
        # the simpler matrix first; without a difference, the convention of the default
        return dict(sorted(found.items(), key=lambda item: (np.count_nonzero(item[1].matrix), item[0])))

    def agrees(self, theta: Theta, align_corners: bool) -> bool:
        """Whether random parameters give the grid that a theta found with other sizes predicts."""
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


def _snapped(coefficients: np.ndarray) -> np.ndarray:
    """Fitted coefficients of one parameter with the rounding of the base removed: whole numbers, and zeros beside the
    largest of them."""
    whole, scale = np.rint(coefficients), np.max(np.abs(coefficients))
    near = 2.0**-21 * np.where(whole == 0, scale, np.abs(whole))
    return np.where(np.abs(coefficients - whole) <= near, whole, coefficients)
