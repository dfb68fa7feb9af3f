"""A custom operator with an int, a float and a string attribute, from PyTorch to ONNX Runtime through both exporters.

    python examples/04_rotate_and_scale.py [FOLDER]

exports rewriter.torch_ops.rot_scale, shows the node that the exporter writes, which no runtime knows, lets the rewriter
give it its function, and holds ONNX Runtime against PyTorch, without and with the kernels where there are any:

    dynamo: CustomRotScale(rotations=3, scale_factor=0.5, dims="height,width")
    ONNX Runtime refuses the exported model; fused, it carries the function CustomRotScale
    functions: 5 images, at most 0.0e+00 from PyTorch
"""

from __future__ import annotations

import io
import logging
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from torch import nn

import rewriter
from rewriter import torch_ops
from rewriter.errors import KernelsError

SIZES = [(12, 20), (20, 12), (64, 64), (1, 7), (331, 117)]
ATOL = 1e-5


class RotateAndScale(nn.Module):
    """Three quarter turns of an image [1, 3, H, W], times one half."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch_ops.rot_scale(torch.relu(image), rotations=3, scale_factor=0.5, dims="height,width")


def by_torch(image: torch.Tensor) -> torch.Tensor:
    """The same with torch's own operators."""
    return torch.rot90(torch.relu(image), 3, (-2, -1)) * 0.5


def exported(exporter: str, image: torch.Tensor) -> onnx.ModelProto:
    """The module through torch's new exporter ("dynamo") or its old one ("TorchScript"), height and width dynamic."""
    names = {"input_names": ["image"], "output_names": ["turned"]}
    if exporter == "dynamo":
        return torch.onnx.export(
            RotateAndScale(), (image,), dynamo=True, dynamic_shapes=({2: "height", 3: "width"},), verbose=False,
            custom_translation_table=torch_ops.TRANSLATIONS, **names).model_proto
    buffer = io.BytesIO()
    torch.onnx.export(RotateAndScale(), (image,), buffer, dynamo=False,
                      dynamic_axes={"image": {2: "height", 3: "width"}}, **names)
    return onnx.load_from_string(buffer.getvalue())


def main(folder: Path) -> None:
    torch.manual_seed(0)
    for exporter in ("dynamo", "TorchScript"):
        model = exported(exporter, torch.randn(1, 3, 12, 20))
        node = next(node for node in model.graph.node if node.op_type == "CustomRotScale")
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        print(f'{exporter}: {node.op_type}(rotations={given["rotations"]}, scale_factor={given["scale_factor"]}, '
              f'dims="{given["dims"].decode()}")')
        fused, report = rewriter.fuse(model)
        path = folder / f"rotate_and_scale.{exporter.lower()}.onnx"
        path.write_bytes(fused.SerializeToString())
        try:
            ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        except Exception:  # its classes differ between versions
            print(f"ONNX Runtime refuses the exported model; fused, it carries the function {report.functions[0]}")
        compare(path)


def compare(path: Path) -> None:
    """Run the file beside PyTorch on images of several sizes."""
    sessions = {"functions": ort.InferenceSession(path, providers=["CPUExecutionProvider"])}
    try:
        sessions["kernels"] = ort.InferenceSession(path, rewriter.session_options(), providers=["CPUExecutionProvider"])
    except KernelsError as error:
        print(f"no kernels here: {error}")
    for label, session in sessions.items():
        off = 0.0
        for size in SIZES:
            image = torch.randn(1, 3, *size)
            (output,) = session.run(None, {"image": image.numpy()})
            np.testing.assert_allclose(output, by_torch(image).numpy(), rtol=0, atol=ATOL)
            off = max(off, np.abs(output - by_torch(image).numpy()).max())
        print(f"{label}: {len(SIZES)} images, at most {off:.1e} from PyTorch")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.disable()  # torch's, about packages that are not installed
    ort.set_default_logger_severity(4)
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
