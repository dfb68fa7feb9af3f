"""Fused against unfused in stock ONNX Runtime, for the bodies of AffineGrid and AffineGridSample. Run by hand:

    python tests/benchmarks/affine_grid_bodies.py [--seconds S] [--case TEXT]

Two threads, interleaved, in alternating order. Prints the medians, the median of the paired ratios unfused / fused with
a 95 % bootstrap interval, and the largest difference of the values.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import onnxruntime as ort
import torch

import rewriter

F = torch.nn.functional


class Grid(torch.nn.Module):
    def __init__(self, size, align_corners):
        super().__init__()
        self.size, self.align_corners = size, align_corners

    def forward(self, theta):
        return F.affine_grid(theta, (theta.shape[0], 1, *self.size), align_corners=self.align_corners)


class Warp(torch.nn.Module):
    def __init__(self, size, align_corners, mode="bilinear", padding_mode="zeros"):
        super().__init__()
        self.grid, self.mode, self.padding_mode = Grid(size, align_corners), mode, padding_mode

    def forward(self, x, theta):
        return F.grid_sample(x, self.grid(theta), self.mode, self.padding_mode, self.grid.align_corners)


class DynamicWarp(torch.nn.Module):
    """A hand-written grid of the image's own, dynamic size."""

    def forward(self, x, theta):
        (n, _, h, w), dtype = x.shape, theta.dtype
        ys, xs = (2 * torch.arange(h).to(dtype) + 1) / h - 1, (2 * torch.arange(w).to(dtype) + 1) / w - 1
        y, x_ = torch.meshgrid(ys, xs, indexing="ij")
        base = torch.stack([x_, y, torch.ones_like(y)], dim=-1).reshape(1, h * w, 3)
        grid = (base @ theta.transpose(1, 2)).reshape(n, h, w, 2)
        return F.grid_sample(x, grid, align_corners=False)


def cases():
    """(name, module, arguments, dynamic_shapes)."""
    generator = torch.Generator().manual_seed(0)

    def theta(n, d=2):
        return torch.eye(d, d + 1) + 0.2 * torch.randn(n, d, d + 1, generator=generator)

    for size in ((7, 9), (28, 28), (512, 512), (1080, 1920), (16, 64, 64)):
        yield f"grid {size}", Grid(size, False), (theta(1, len(size)),), None
    yield "grid 8 x (64, 64)", Grid((64, 64), False), (theta(8),), None
    for shape in ((1, 3, 7, 9), (1, 1, 28, 28), (1, 3, 28, 28), (8, 32, 64, 64), (1, 64, 256, 256), (1, 3, 512, 512),
                  (1, 3, 1080, 1920)):
        x = torch.randn(*shape, generator=generator)
        for align_corners in (False, True):
            yield f"warp {shape} ac={align_corners:d}", Warp(shape[2:], align_corners), (x, theta(shape[0])), None
    for shape in ((1, 3, 7, 9), (1, 3, 28, 28), (1, 3, 512, 512)):
        x = torch.randn(*shape, generator=generator)
        for padding in ("border", "reflection"):
            for align_corners in (False, True):
                yield (f"warp {shape} {padding} ac={align_corners:d}",
                       Warp(shape[2:], align_corners, "bilinear", padding), (x, theta(shape[0])), None)
        batch = {0: torch.export.Dim.DYNAMIC}
        yield f"warp {shape} ac=1, dynamic batch", Warp(shape[2:], True), (x, theta(shape[0])), (batch, batch)
        hw = {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}
        yield f"warp {shape} ac=0, dynamic size", DynamicWarp(), (x, theta(shape[0])), (hw, None)
    x = torch.randn(1, 2, 16, 64, 64, generator=generator)
    yield "warp (1, 2, 16, 64, 64) ac=1", Warp((16, 64, 64), True), (x, theta(1, 3)), None


def session(model) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def pairs(before, after, feeds, seconds: float) -> np.ndarray:
    """[rounds, 2] times; at least 15 rounds, at most 2000."""

    def once(which, repeats):
        start = time.perf_counter()
        for _ in range(repeats):
            which.run(None, feeds)
        return (time.perf_counter() - start) / repeats

    for which in (before, after):
        once(which, 2)
    repeats, rows, end = max(1, int(2e-4 / once(before, 3))), [], time.perf_counter() + seconds
    while len(rows) < 2000 and (time.perf_counter() < end or len(rows) < 15):
        rows.append((once(before, repeats), once(after, repeats)) if len(rows) % 2
                    else (once(after, repeats), once(before, repeats))[::-1])
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="time spent on each case")
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, module, inputs, dynamic in cases():
        if arguments.case not in name:
            continue
        model = torch.onnx.export(module.eval(), inputs, dynamo=True, opset_version=20, dynamic_shapes=dynamic,
                                  verbose=False).model_proto
        fused, report = rewriter.fuse(model)
        feeds = {i.name: v.numpy() for i, v in zip(model.graph.input, inputs)}
        before, after = session(model), session(fused)
        difference = np.abs(before.run(None, feeds)[0] - after.run(None, feeds)[0]).max()
        times = pairs(before, after, feeds, arguments.seconds)
        ratios, rng = times[:, 0] / times[:, 1], np.random.default_rng(0)
        spread = [np.median(rng.choice(ratios, len(ratios))) for _ in range(400)]
        low, high = np.percentile(spread, [2.5, 97.5])
        unfused, now = np.median(times, axis=0) * 1e3
        what = ",".join(f.operator or "-" for f in report.fused)
        print(f"{name:42s} {unfused:9.4f} -> {now:9.4f} ms  x{np.median(ratios):7.2f} [{low:.2f}, {high:.2f}]  "
              f"{len(times)} rounds  {difference:.1e}  {what}", flush=True)


if __name__ == "__main__":
    main()
