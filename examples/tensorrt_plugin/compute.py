"""What the plugins compute, in PyTorch, on whatever device the tensors are. Tested on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def affine_grid(theta: torch.Tensor, size: Sequence[int], align_corners: bool) -> torch.Tensor:
    """custom.ops::AffineGrid. theta [N or 1, d, d + 1]; size (N or 1, C, spatial...); the grid [N, spatial..., d] is
    computed in float32 (float64 for float64) and not rounded back."""
    wide = theta if theta.dtype == torch.float64 else theta.float()
    batch, spatial = max(len(theta), int(size[0])), [int(n) for n in size[2:]]
    axes = [(2 * torch.arange(n, dtype=wide.dtype, device=theta.device) + 1 - n) / max(n - align_corners, 1)
            for n in spatial]
    d = len(spatial)
    grid = wide[:, :, d].reshape(-1, *(1,) * d, d).expand(batch, *spatial, d)
    for column, axis in enumerate(reversed(range(d))):
        shape = [-1 if k == axis else 1 for k in range(d)]
        grid = grid + wide[:, :, column].reshape(-1, *(1,) * d, d) * axes[axis].reshape(1, *shape, 1)
    return grid


def affine_grid_sample(x: torch.Tensor, theta: torch.Tensor, size: Sequence[int], mode: str, padding_mode: str,
                       align_corners: bool, grid_align_corners: bool) -> torch.Tensor:
    """custom.ops::AffineGridSample; mode is "bilinear", "nearest" or "bicubic". Sampled in float32, rounded once."""
    grid = affine_grid(theta, size, grid_align_corners).to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    y = torch.nn.functional.grid_sample(x.to(grid.dtype), grid, mode, padding_mode, align_corners)
    return y.to(x.dtype)
