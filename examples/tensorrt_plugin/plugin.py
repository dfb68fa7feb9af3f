"""The plugins that `--target tensorrt-plugin` writes nodes for, as TensorRT's quickly deployable Python plugins.

NOT RUN: no machine of the project has a GPU. It is written after NVIDIA's documentation of `tensorrt.plugin`
(TensorRT 10.7 and newer); tests hold its signatures against the nodes that are written and `compute.py` against
PyTorch, on the CPU.

    python examples/tensorrt_plugin/plugin.py fused.onnx fused.plan

or `import plugin` before your own `trt.OnnxParser` parses. Python plugins live in the process: trtexec cannot load
them. An engine runs only where this module was imported first.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
import tensorrt as trt
import tensorrt.plugin as trtp
import torch
from compute import affine_grid, affine_grid_sample

GRID = "warpfuse::WarpfuseAffineGrid"
SAMPLE = "warpfuse::WarpfuseAffineGridSample"
DEVICE = "cuda"


@trtp.register(GRID)
def describe_grid(theta: trtp.TensorDesc, align_corners: int, size: npt.NDArray[np.int32]) -> trtp.TensorDesc:
    """theta [N or 1, d, d + 1] -> grid [N, spatial..., d]."""
    batch = theta.shape_expr[0] if int(size[0]) == 1 else int(size[0])
    return trtp.from_shape_expr((batch, *(int(n) for n in size[2:]), len(size) - 2), dtype=theta.dtype)


@trtp.impl(GRID)
def run_grid(theta: trtp.Tensor, align_corners: int, size: npt.NDArray[np.int32], outputs: tuple[trtp.Tensor],
             stream: int) -> None:
    with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
        grid = affine_grid(torch.as_tensor(theta, device=DEVICE), size, bool(align_corners))
        torch.as_tensor(outputs[0], device=DEVICE).copy_(grid)


@trtp.register(SAMPLE)
def describe_sample(x: trtp.TensorDesc, theta: trtp.TensorDesc, padding_mode: str, align_corners: int,
                    grid_align_corners: int, mode: str, size: npt.NDArray[np.int32]) -> trtp.TensorDesc:
    """x [N, C, spatial...], theta [N or 1, d, d + 1] -> y [N, C, new spatial...]."""
    shape = (x.shape_expr[0], x.shape_expr[1], *(int(n) for n in size[2:]))
    return trtp.from_shape_expr(shape, dtype=x.dtype)


@trtp.impl(SAMPLE)
def run_sample(x: trtp.Tensor, theta: trtp.Tensor, padding_mode: str, align_corners: int, grid_align_corners: int,
               mode: str, size: npt.NDArray[np.int32], outputs: tuple[trtp.Tensor], stream: int) -> None:
    with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
        y = affine_grid_sample(
            torch.as_tensor(x, device=DEVICE), torch.as_tensor(theta, device=DEVICE), size, mode, padding_mode,
            bool(align_corners), bool(grid_align_corners))
        torch.as_tensor(outputs[0], device=DEVICE).copy_(y)


def build(source: str, target: str) -> None:
    """Build an engine from a file whose shapes are fixed, and write it."""
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(source):
        sys.exit("\n".join(str(parser.get_error(i)) for i in range(parser.num_errors)))
    engine = builder.build_serialized_network(network, builder.create_builder_config())
    if engine is None:
        sys.exit("the engine was not built")
    with open(target, "wb") as file:
        file.write(engine)


if __name__ == "__main__":
    build(*sys.argv[1:3])
