"""A sweep over sizes for a model whose sizes are fixed: it is exported anew for each.

    python examples/05_compare_sizes.py [SIZE,SIZE...] [SECONDS]

(A model with open dims needs no such script: `python -m rewriter a.onnx b.onnx --compare-only --sweep H,W=64..1080`.)
On one thread of a shared Intel Xeon, December 2026:

       32 ORT fused, functions     2.87x (2.86 to 2.89), largest error 2.0e-06
       32 ORT fused, kernels       4.39x (4.39 to 4.40), largest error 2.3e-06
      128 ORT fused, functions    19.29x (15.81 to 19.65), largest error 1.2e-05
      128 ORT fused, kernels      87.91x (72.03 to 89.54), largest error 9.6e-06
      512 ORT fused, functions     4.53x (2.69 to 5.47), largest error 6.0e-05
      512 ORT fused, kernels     142.07x (130.14 to 151.99), largest error 4.7e-05
"""

from __future__ import annotations

import sys
import warnings

import torch
from torch import nn
from torch.nn import functional as F

import rewriter


class Sampler(nn.Module):
    """affine_grid and grid_sample: image [N, 3, H, W] and theta [N, 2, 3] to [N, 3, H, W]."""

    def forward(self, image: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        grid = F.affine_grid(theta, image.shape, align_corners=False)
        return F.grid_sample(image, grid, align_corners=False)


def main(sizes: list[int], seconds: float) -> None:
    warnings.simplefilter("ignore")
    for size in sizes:
        arguments = torch.rand(1, 3, size, size), torch.eye(2, 3)[None]
        program = torch.onnx.export(Sampler().eval(), arguments, dynamo=True, verbose=False)
        result = rewriter.compare(program, seconds=seconds, threads=1)
        for key in ("onnxruntime-fused", "onnxruntime-kernels"):
            variant = result.variant(key)
            if variant.ran:
                ratio = variant.faster
                print(f"{size:5} {variant.label:22} {ratio.value:6.2f}x ({ratio.low:.2f} to {ratio.high:.2f}), "
                      f"largest error {variant.error.absolute:.1e}")


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1].split(",")] if len(sys.argv) > 1 else [32, 128, 512],
         float(sys.argv[2]) if len(sys.argv) > 2 else 10.0)
