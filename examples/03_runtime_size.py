"""A spatial transformer whose output size is an input: torch's exporter refuses it, rewriter.torch_ops does not.

    python examples/03_runtime_size.py [FOLDER]

exports a model with the inputs theta [N, 2, 3], size [4] and image, fuses it, and runs it at several sizes of image
and output beside PyTorch, in ONNX Runtime alone and with the kernels, where this installation has them:

    torch.nn.functional.affine_grid: torch.onnx.export refuses a size that is an input
    exported: theta[1, 2, 3], size[4], image[1, 3, image_h, image_w] -> warped[1, 3, out_h, out_w]
    AffineGridSample at node_GridSample_3: sampler of image
    image 48x64 -> 48x64: functions differ by 6.4e-06
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from torch import nn
from torch.nn import functional as F

import rewriter
from rewriter import torch_ops
from rewriter.errors import KernelsError

SIZES = [((48, 64), (48, 64)), ((48, 64), (100, 30)), ((17, 9), (33, 70)), ((256, 256), (1, 5))]
ATOL = 1e-5


class RuntimeSize(nn.Module):
    """Warps an image [1, 3, H, W] by theta [1, 2, 3] into an output of the given size (N, C, out_h, out_w)."""

    def __init__(self, affine_grid=torch_ops.affine_grid):
        super().__init__()
        self.affine_grid = affine_grid

    def forward(self, theta: torch.Tensor, size: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        grid = self.affine_grid(theta, size, align_corners=False)
        return F.grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def by_torch(theta: torch.Tensor, size: torch.Tensor, align_corners: bool) -> torch.Tensor:
    """torch's own, which takes a list of ints."""
    return F.affine_grid(theta, size.tolist(), align_corners)


def main(folder: Path) -> None:
    torch.manual_seed(0)
    theta = torch.tensor([[[0.9, -0.2, 0.05], [0.2, 0.9, -0.05]]])
    arguments = (theta, torch.tensor([1, 3, 48, 64]), torch.rand(1, 3, 48, 64))
    names = ["theta", "size", "image"]
    options = {"dynamo": True, "verbose": False, "input_names": names, "output_names": ["warped"],
               "dynamic_shapes": ({}, {}, {2: "image_h", 3: "image_w"})}
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # torch prints the program that it gives up on
            torch.onnx.export(RuntimeSize(by_torch), arguments, **options)
    except torch.onnx.errors.OnnxExporterError:
        print("torch.nn.functional.affine_grid: torch.onnx.export refuses a size that is an input")

    program = torch.onnx.export(RuntimeSize(), arguments, custom_translation_table=torch_ops.TRANSLATIONS, **options)
    fused, report = rewriter.fuse(program.model_proto)
    for dim, name in zip(fused.graph.output[0].type.tensor_type.shape.dim[2:], ("out_h", "out_w")):
        dim.dim_param = name  # torch calls what only the run knows u0 and u1
    path = folder / "runtime_size.fused.onnx"
    path.write_bytes(fused.SerializeToString())
    print("exported:", ", ".join(map(described, fused.graph.input)), "->", *map(described, fused.graph.output))
    for found in report.fused:
        if report.count(found.operator):
            print(f"{found.operator} at {found.node}: {found.note}")

    sessions = {"functions": ort.InferenceSession(path, providers=["CPUExecutionProvider"])}
    try:
        sessions["kernels"] = ort.InferenceSession(path, rewriter.session_options(), providers=["CPUExecutionProvider"])
    except KernelsError as error:
        print(f"no kernels here: {error}")
    model = RuntimeSize(by_torch)
    for image_size, size in SIZES:
        arguments = (theta, torch.tensor([1, 3, *size]), torch.rand(1, 3, *image_size))
        expected = model(*arguments).numpy()
        feeds = {name: value.numpy() for name, value in zip(names, arguments)}
        off = {}
        for label, session in sessions.items():
            (output,) = session.run(None, feeds)
            np.testing.assert_allclose(output, expected, rtol=0, atol=ATOL)
            off[label] = np.abs(output - expected).max()
        words = ", ".join(f"{label} {'differ ' * (label == 'functions')}by {value:.1e}" for label, value in off.items())
        print(f"image {'x'.join(map(str, image_size))} -> {'x'.join(map(str, size))}: {words}")


def described(value) -> str:
    """An input or output with its dims."""
    dims = ", ".join(dim.dim_param or str(dim.dim_value) for dim in value.type.tensor_type.shape.dim)
    return f"{value.name}[{dims}]"


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.disable()  # torch's, of the export that fails
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
