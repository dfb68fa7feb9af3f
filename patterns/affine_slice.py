"""Proving that a linear slice is an affine grid: the search for theta, and the proof.

A slice is an affine function of the values at any cut through it, so evaluating it on a basis gives that function
exactly; for static sizes the outcome is a proof, not a sample. It is an affine grid of theta [N, d, d+1] when the
field that each parameter spans is affine in the base grid's coordinates, in every sample alike.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from patterns.affine_probe import MOST_PARAMETERS, Cut, Probe, Theta
from patterns.size_ratios import fit
from rewriter.evaluator import EvaluationError, Evaluator
from rewriter.scopes import Scope
from rewriter.slices import LinearSlice
from rewriter.trials import beyond_trial, symbols, trials
from rewriter.unknowns import Unknowns, unknowns
from rewriter.vocabulary import Miss

Conventions = dict[bool, Theta]  # by align_corners
MOST_VALUES = 6  # of a cut of several
DEPENDS = "at every size it is affine in the pixel coordinates, but what makes"


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
    candidates = list(_candidates(piece, scope, rank))
    numbers = unknowns(scope, piece.structural) if candidates else None
    for cut in candidates if numbers is not None else ():
        outcome = _prove_cut(piece, scope, rank, *cut, numbers)
        if isinstance(outcome, Proof):
            return outcome
    if (node := beyond_trial(scope, piece.structural)) is not None:
        return Miss(f"its sizes go through {node.op_type}, which no number of tried sizes can prove", node.name or "")
    for cut in candidates:
        outcome = _prove_cut(piece, scope, rank, *cut)
        if isinstance(outcome, Proof):
            return outcome
        if closest is None or (outcome is not None and DEPENDS in outcome.reason and DEPENDS not in closest.reason):
            closest = outcome  # the nearest theta-shaped one says most, but for one that is proven at each size
    return closest


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
    return all(isinstance(d, int) for d in per_sample) and math.prod(per_sample) <= MOST_PARAMETERS


def _readings(shapes: list[tuple]) -> list[bool]:
    """Whether the first axes may be the batch, and whether they may not."""
    dims = [d for shape in shapes for d in shape]
    few = all(isinstance(d, int) for d in dims) and sum(math.prod(shape) for shape in shapes) <= MOST_PARAMETERS
    return [True] * all(shapes) + [False] * (few and any(shape[:1] != (1,) for shape in shapes))


def _frontier(piece: LinearSlice, sizes: dict[ir.Value, tuple]) -> Cut:
    """The nearest small values that together are a cut; () where some path has none."""
    stack, seen, cut = [piece.target], set(), {}
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in sizes and (len(sizes[value]) == 3 or math.prod(sizes[value][1:]) <= 4):
            cut[value] = None
        elif value in piece.leaves:
            return ()
        else:
            stack.extend(reversed(piece.feeds[value]))
    return tuple(cut)


def _prove_cut(piece: LinearSlice, scope: Scope, rank: int, values: Cut, form: str, batched: bool,
               numbers: Unknowns | None = None) -> Proof | Miss | None:
    tried = (trials if numbers is None else numbers.trials)(scope, [*piece.structural, *values])
    if not tried:
        return None
    telling = scope.memo("sizes that told an impostor", dict)  # tried first with the next cut
    tried.sort(key=lambda e: e.optional or tuple(e.sizes.items()) not in telling)
    if batched and len(tried) > 1 and not _same_batch(values, piece.structural, scope):
        tried += _with_batch_one(tried[0], values)
    proven: list[tuple[Evaluator, Probe]] = []
    found: Conventions = {}
    seen: list[tuple[tuple[int, ...], Conventions]] = []  # by trials, of which spatial shape
    name = ", ".join(v.name or "" for v in values)
    for evaluator in tried:
        try:
            probe = Probe(piece, evaluator, values, rank, batched)
            if evaluator.optional:
                if min(probe.grid[1:-1]) == 1:
                    continue  # see the README on axes of length 1
                found = {a: theta for a, theta in found.items() if probe.agrees(theta, a)}
                here: Conventions | Miss = found
            else:
                here = probe.as_it_stands() if form == "as it stands" else probe.adjusted()
        except EvaluationError as error:
            if evaluator.optional and not _changes_rank(values, evaluator, tried[0]):
                continue  # the graph itself cannot run so
            return Miss(f"it cannot be evaluated: {error}", name) if proven else None
        if isinstance(here, Miss):
            telling[tuple(evaluator.sizes.items())] = None
            return here
        if not evaluator.optional:
            seen.append((probe.grid[1:-1], here))
            found = _joined(found, seen)
        if not found:
            telling[tuple(evaluator.sizes.items())] = None
            return Miss(f"{DEPENDS} {name} into theta depends on the size", name)
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
    found, _ = symbols(scope, structural)
    if not found:
        return True
    batches = {shape[0] if (shape := scope.shape(v)) else None for v in values}
    sizes = {name for name, is_batch in found.items() if is_batch}
    return batches == sizes and not any(v.is_graph_input() for v in values)


def _with_batch_one(evaluator: Evaluator, values: Cut) -> list[Evaluator]:
    """A trial in which parameters of batch 1 meet a larger batch: symbols that are declared equal may differ at run
    time, and then the grid's batch must not be taken from the parameters."""
    try:
        assumed = {value: (1, *evaluator.shape(value)[1:]) for value in values}
    except EvaluationError:
        return []
    return [Evaluator(evaluator.scope, evaluator.sizes, assumed, fixed=evaluator.fixed)]


def _joined(found: Conventions, seen: Sequence[tuple[tuple[int, ...], Conventions]]) -> Conventions:
    """`found` by all trials seen but the last, held against that one: the same theta, or, where none is, one that
    depends on the size in the same way at all of them."""
    here = seen[-1][1]
    if len(seen) == 1:
        return here
    alike = {} if any(theta.ratios for theta in found.values()) else _agreeing(found, here)
    return alike or _of_the_size({a: found[a] for a in found if a in here}, seen)


def _of_the_size(found: Conventions, seen: Sequence[tuple[tuple[int, ...], Conventions]]) -> Conventions:
    fitted = {a: fit([(spatial, thetas[a].entries) for spatial, thetas in seen])
              for a, theta in found.items() if theta.matrix is not None}
    of_size = {a: found[a].of(*fitting) for a, fitting in fitted.items() if fitting is not None}
    return dict(sorted(of_size.items(), key=lambda item: item[1].ratios.count()))  # the simplest first


def _agreeing(a: Conventions, b: Conventions) -> Conventions:
    """The conventions under which two trials found the same theta."""

    def equal(x, y):
        if x is None or y is None:
            return x is y
        scale = np.max(np.abs(x), axis=(-1, -2), keepdims=True)  # of each parameter
        return bool(np.all(np.abs(x - y) <= 2.0**-20 * scale))

    return {k: a[k] for k in a if k in b and equal(a[k].matrix, b[k].matrix) and equal(a[k].offset, b[k].offset)}
