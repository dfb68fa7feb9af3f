"""The default patterns, in the order they run."""

from __future__ import annotations

from patterns.adopt import AdoptPattern
from patterns.affine_grid import AffineGridPattern
from patterns.affine_grid_sample import AffineGridSamplePattern
from patterns.follow_input_size import FollowInputSizePattern
from patterns.plugin_nodes import PluginNodesPattern
from patterns.rot90 import Rot90Pattern

ALL = (AdoptPattern(), PluginNodesPattern(), AffineGridPattern(), AffineGridSamplePattern(), Rot90Pattern())
OPT_IN = (FollowInputSizePattern(),)  # run behind them where asked for
FOR_KERNELS = (Rot90Pattern(kernels=True),)  # in place of those of the same name, for models that our kernels will run
