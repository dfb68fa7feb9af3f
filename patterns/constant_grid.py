"""Grids that follow from constants and sizes alone: theta is found by fitting the grid itself.

Seen whenever theta is a buffer: the exporter folds the whole grid into one initializer (16.6 MB at 1080p), or leaves
an Expand of it to the batch.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import onnx_ir as ir

from patterns.affine_probe import FEWEST_PIXELS
from patterns.base_grid import BaseGrid, tolerance
from rewriter.evaluator import EvaluationError, Evaluator
from rewriter.scopes import Scope
from rewriter.trials import beyond_trial
from rewriter.unknowns import unknowns
from rewriter.vocabulary import Miss


@dataclasses.dataclass(frozen=True)
class ConstantGrid:
    """An affine grid of a constant theta.

    Attributes:
        theta: [1 or N, d, d+1] float64; one entry where all samples have the same.
        align_corners: of the base grid.
        trials, shapes: the evaluators it was proven under, and the grid's shape under each.
    """

    theta: np.ndarray
    align_corners: bool
    trials: tuple[Evaluator, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def rank(self) -> int:
        return self.theta.shape[1]

    @property
    def batch_is_thetas(self) -> bool:
        return all(shape[0] == len(self.theta) for shape in self.shapes)


def fit(value: ir.Value, scope: Scope, rank: int) -> ConstantGrid | Miss:
    """Fit every pixel of every sample, under every size; the same theta must come out, to the grid's own precision."""
    if (numbers := unknowns(scope, [value])) is not None and (tried := numbers.trials(scope, [value])):
        found = _fit(value, tried, rank)
        if isinstance(found, ConstantGrid):
            return found
    if (node := beyond_trial(scope, [value])) is not None:
        return Miss(f"its sizes go through {node.op_type}, which no number of tried sizes can prove", node.name or "")
    return _fit(value, scope.trials([value]), rank)


def _fit(value: ir.Value, evaluators: list[Evaluator], rank: int) -> ConstantGrid | Miss:
    found: dict[bool, np.ndarray] = {}
    proven: list[tuple[Evaluator, tuple[int, ...]]] = []
    for evaluator in evaluators:
        try:
            grid = np.asarray(evaluator.value(value))
        except EvaluationError as error:
            if evaluator.optional:
                continue
            return Miss(f"the grid cannot be evaluated: {error}", value.name or "")
        if evaluator.optional and min(grid.shape, default=0) < 2:
            continue  # a batch or an axis of length 1 tells nothing of theta
        if grid.ndim != rank + 2 or grid.shape[-1] != rank or math.prod(grid.shape[1:-1]) < FEWEST_PIXELS:
            return Miss(f"the grid has shape {grid.shape}", value.name or "")
        here, off = _thetas(grid, rank, evaluator.rounding_unit(value))
        if not here:
            return Miss(f"the constant grid is not affine in the pixel coordinates: off by {off:.2g}", value.name or "")
        found = here if not proven else {
            a: t for a, t in found.items()
            if a in here and t.shape == here[a].shape and np.allclose(t, here[a], rtol=0, atol=2.0**-20)}
        if not found:
            return Miss("the theta of the constant grid depends on the size", value.name or "")
        proven.append((evaluator, grid.shape))
    align_corners = min(found)
    return ConstantGrid(found[align_corners], align_corners, tuple(e for e, _ in proven), tuple(s for _, s in proven))


def _thetas(grid: np.ndarray, rank: int, unit: float) -> tuple[dict[bool, np.ndarray], float]:
    """The theta under each convention that fits, and the worst residual of the others."""
    found, worst = {}, 0.0
    single = bool(np.all(grid == grid[:1]))
    for align_corners in (False, True):
        base = BaseGrid(grid.shape[1:-1], align_corners)
        limit = min(tolerance(unit), base.spacing() / 4)
        theta = np.zeros((1 if single else len(grid), rank, rank + 1))
        off = 0.0
        for n in range(len(theta)):
            for i in range(rank):
                field = grid[n, ..., i].astype(np.float64)
                theta[n, i], residual = base.fit(field)
                off = max(off, residual / max(1.0, float(np.max(np.abs(field)))))
        if off <= limit:
            found[align_corners] = theta
        else:
            worst = max(worst, off)
    return found, worst
