"""The default patterns, in the order they run."""

from __future__ import annotations

from patterns.affine_grid import AffineGridPattern
from patterns.affine_grid_sample import AffineGridSamplePattern
from patterns.rot90 import Rot90Pattern

ALL = (AffineGridPattern(), AffineGridSamplePattern(), Rot90Pattern())
