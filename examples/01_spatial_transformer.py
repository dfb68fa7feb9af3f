"""A spatial transformer, exported by PyTorch, fused, and held against PyTorch.

    python examples/01_spatial_transformer.py [FOLDER]

writes stn.onnx and stn.fused.onnx to FOLDER (default: a temporary one) and prints what was fused, the largest
difference to PyTorch before and after, and the sizes:

    AffineGrid at node_view_5: affine grid of view_1
    AffineGridSample at node_GridSample_87: sampler of image
    unfused: 17 nodes, 53,698 bytes, differs from PyTorch by 5.8e-05
    fused:   9 nodes, 38,220 bytes, differs from PyTorch by 5.8e-05
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from torch import nn
from torch.nn import functional as F

import rewriter


class SpatialTransformer(nn.Module):
    """Predicts an affine transform from an image [N, 3, H, W] and resamples the image with it."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 7, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=4), nn.ReLU(), nn.MaxPool2d(7))
        self.regress = nn.Linear(16 * 4 * 4, 6)
        nn.init.normal_(self.regress.weight, std=1e-3)
        self.regress.bias.data = torch.tensor([0.9, -0.2, 0.05, 0.2, 0.9, -0.05])

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        theta = self.regress(self.features(image).flatten(1)).view(-1, 2, 3)
        grid = F.affine_grid(theta, image.shape, align_corners=False)
        return F.grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def main(folder: Path) -> None:
    torch.manual_seed(0)
    model = SpatialTransformer().eval()
    image = torch.rand(1, 3, 512, 512)
    torch.onnx.export(model, (image,), folder / "stn.onnx", dynamo=True, external_data=False, verbose=False)

    report = rewriter.fuse(folder / "stn.onnx", folder / "stn.fused.onnx")
    for fused in report.fused:
        print(f"{fused.operator} at {fused.node}: {fused.note}")

    with torch.no_grad():
        expected = model(image).numpy()
    sizes = (("unfused", "stn.onnx", report.nodes_before), ("fused", "stn.fused.onnx", report.nodes_after))
    for label, name, nodes in sizes:
        session = ort.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
        (output,) = session.run(None, {session.get_inputs()[0].name: image.numpy()})
        difference = np.abs(output - expected).max()
        size = (folder / name).stat().st_size
        print(f"{label + ':':8} {nodes} nodes, {size:,} bytes, differs from PyTorch by {difference:.1e}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
