"""Makes the corpus: exports torch modules, stores PyTorch's outputs, and this release's fused files.

    python tests/corpus/make.py             adds or renews the cases
    python tests/corpus/make.py --fused     also stores them fused, under fused/<version>: once a release, never again
"""

from __future__ import annotations

import io
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch

import rewriter

F = torch.nn.functional
HERE = Path(__file__).parent
GRID = {"affine_grid": 1}
PAIR = {"affine_grid": 1, "affine_grid_sample_pairs": 1}


def image(n=2, c=3, *size):
    return torch.rand(n, c, *(size or (7, 9)))


def theta(n=2, rank=2, dtype=torch.float32):
    return (torch.eye(rank, rank + 1) + 0.3 * torch.randn(n, rank, rank + 1)).to(dtype)


def grid(size, corners):
    return lambda t: F.affine_grid(t, (t.shape[0], 1, *size), align_corners=corners)


def warp(corners=False, mode="bilinear", padding="zeros", grid_corners=None):
    inner = corners if grid_corners is None else grid_corners
    return lambda x, t: F.grid_sample(x, F.affine_grid(t, x.shape, align_corners=inner), mode, padding, corners)


def hand_dynamic(x, t):
    h, w = x.shape[2], x.shape[3]
    ys, xs = torch.arange(h) * 2 + 1, torch.arange(w) * 2 + 1
    y, x1 = torch.meshgrid(ys / h - 1, xs / w - 1, indexing="ij")
    base = torch.stack([x1, y, torch.ones_like(y)], -1).reshape(1, h * w, 3)
    flow = (base.expand(x.shape[0], -1, -1) @ t.transpose(1, 2)).reshape(-1, h, w, 2)
    return F.grid_sample(x, flow, align_corners=False)


def perspective(x, t):
    y, x1 = torch.meshgrid(torch.linspace(-1, 1, 7), torch.linspace(-1, 1, 9), indexing="ij")
    p = torch.stack([x1, y, torch.ones_like(y)], -1) @ t.transpose(1, 2)[:, None]
    return F.grid_sample(x, p[..., :2] / p[..., 2:], align_corners=True)


def average_of_turns(x):
    """Of a net that knows up from down, so that no turn cancels."""
    return sum(torch.rot90(torch.cumsum(torch.rot90(x, k, (2, 3)), 2), -k, (2, 3)) for k in range(4)) / 4


N, NHW = {0: "N"}, {0: "N", 2: "H", 3: "W"}
CASES = {  # name: (function, inputs, expected, export options)
    "grid_corners": (grid((7, 9), True), [theta()], GRID, {}),
    "grid_centres": (grid((7, 9), False), [theta()], GRID, {"opset_version": 20}),
    "grid_unfolded": (grid((48, 40), False), [theta()], GRID, {}),
    "grid_volume": (grid((4, 5, 6), True), [theta(2, 3)], GRID, {"opset_version": 20}),
    "grid_half": (grid((12, 14), False), [theta(dtype=torch.float16)], GRID, {"opset_version": 20, "atol": 1e-3}),
    "grid_operator": (grid((7, 9), False), [theta()], GRID, {"dynamo": False, "opset_version": 20}),
    "pair_18": (warp(), [image(), theta()], PAIR, {"opset_version": 18}),
    "pair_22_corners": (warp(True), [image(), theta()], PAIR, {"opset_version": 22}),
    "pair_border": (warp(True, "bilinear", "border"), [image(), theta()], PAIR, {"opset_version": 20}),
    "pair_cubic_mixed": (warp(False, "bicubic", "reflection", True), [image(), theta()], PAIR, {"opset_version": 20}),
    "pair_volume": (warp(), [image(2, 2, 4, 5, 6), theta(2, 3)], PAIR, {"opset_version": 20}),
    "pair_dynamic_batch": (warp(), [image(), theta()], PAIR, {"dynamic_shapes": (N, N)}),
    "pair_hand_dynamic": (hand_dynamic, [image(), theta()], PAIR,
                          {"dynamo": False, "opset_version": 16, "dynamic_axes": {"in0": NHW, "in1": N}}),
    "perspective": (perspective, [image(), torch.eye(3).repeat(2, 1, 1) + 0.1 * torch.rand(2, 3, 3)], {}, {}),
    "turn_1": (lambda x: torch.rot90(x, 1, (2, 3)), [image()], {"rot90": 1}, {}),
    "turn_2": (lambda x: torch.rot90(x, 2, (2, 3)), [image()], {"rot90": 1}, {}),
    "turn_3_dynamic": (lambda x: torch.rot90(x, 3, (2, 3)), [image()], {"rot90": 1}, {"dynamic_shapes": (NHW,)}),
    "turn_scaled": (lambda x: torch.rot90(x, 2, (2, 3)) * 1.5, [image()], {"rot90": 1, "rot_scale": 1}, {}),
    "turns_averaged": (average_of_turns, [image(1, 2, 6, 8)], {"rot90": 6}, {}),
    "flip": (lambda x: torch.flip(x, (3,)), [image()], {}, {}),
}


class One(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Two(One):
    def forward(self, x, t):
        return self.function(x, t)


def export(module, inputs, options) -> bytes:
    options = {"dynamo": True, "opset_version": 18, **options}
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if options["dynamo"]:
            program = torch.onnx.export(module, tuple(inputs), verbose=False, **options)
            return program.model_proto.SerializeToString(deterministic=True)
        names = [f"in{i}" for i in range(len(inputs))]
        torch.onnx.export(module, tuple(inputs), buffer, input_names=names, output_names=["out"], **options)
    return buffer.getvalue()


def make(name, function, inputs, expected, options, fused: Path | None) -> dict:
    options = dict(options)
    atol = options.pop("atol", 1e-5)
    path = HERE / f"{name}.onnx"
    model = onnx.load_from_string(export((One if len(inputs) == 1 else Two)(function).eval(), inputs, options))
    for node in model.graph.node:  # the exporter notes where on the exporting machine a node comes from
        for entry in [e for e in node.metadata_props if "stack_trace" in e.key]:
            node.metadata_props.remove(entry)
    path.write_bytes(model.SerializeToString(deterministic=True))
    outputs = [function(*inputs)]
    arrays = {f"in_{v.name}": t.numpy() for v, t in zip(model.graph.input, inputs)}
    arrays |= {f"out_{v.name}": t.numpy() for v, t in zip(model.graph.output, outputs)}
    np.savez_compressed(path.with_suffix(".npz"), **arrays)
    if fused is not None and expected:
        fused.mkdir(parents=True, exist_ok=True)
        rewriter.fuse(path, fused / path.name)
        np.savez_compressed(fused / f"{name}.npz", **arrays)
    counts = dict.fromkeys(("affine_grid", "affine_grid_sample_pairs", "rot90", "rot_scale"), 0) | expected
    return {"name": name, "expect": counts, "atol": atol, "rtol": 1e-4}


def main(store: bool) -> None:
    torch.manual_seed(0)
    fused = HERE / "fused" / rewriter.__version__ if store else None
    manifest = [make(name, *case, fused) for name, case in CASES.items()]
    (HERE / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main("--fused" in sys.argv[1:])
