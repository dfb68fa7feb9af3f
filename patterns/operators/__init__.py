"""The operators of `custom.ops` version 1: contracts, fallback functions, references."""

from __future__ import annotations

from patterns.operators.affine_grid import AFFINE_GRID
from patterns.operators.affine_grid_sample import AFFINE_GRID_SAMPLE
from patterns.operators.rot90 import CUSTOM_ROT_SCALE, ROT90
from rewriter.vocabulary import Operator

OPERATORS: dict[str, Operator] = {op.name: op for op in (AFFINE_GRID, AFFINE_GRID_SAMPLE, ROT90, CUSTOM_ROT_SCALE)}
