"""How much faster fused models run in stock ONNX Runtime: real dynamo exports, in turns, medians, 95 % intervals.

    python tests/benchmarks/fused_speed.py [--seconds 10] [--threads 2] [-k NAME]
"""

from __future__ import annotations

import argparse
import warnings

import torch

import rewriter
from rewriter.timing import measure

F = torch.nn.functional
SIZES = {"512x512": (512, 512), "1080x1920": (1080, 1920)}


class Grid(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, theta):
        return F.affine_grid(theta, (1, 3, *self.size), align_corners=False)


class Warp(torch.nn.Module):
    def __init__(self, corners):
        super().__init__()
        self.corners = corners

    def forward(self, image, theta):
        return F.grid_sample(image, F.affine_grid(theta, image.shape, align_corners=self.corners),
                             align_corners=self.corners)


class Turn(torch.nn.Module):
    def __init__(self, *turns):
        super().__init__()
        self.turns = turns

    def forward(self, x):
        return [torch.rot90(x, k, (2, 3)) for k in self.turns]


def cases():
    theta = torch.tensor([[[0.8, -0.3, 0.1], [0.3, 0.8, -0.1]]])
    for name, size in SIZES.items():
        yield f"affine_grid {name}", Grid(size), (theta,)
        for corners in (False, True):
            image = torch.rand(1, 3, *size)
            yield f"affine_grid + grid_sample {name} align_corners={corners}", Warp(corners), (image, theta)
    image = torch.rand(1, 3, 1024, 1024)
    for turns in ((1,), (2,), (3,), (1, 2, 3)):
        yield f"rot90 k={','.join(map(str, turns))} 1x3x1024x1024", Turn(*turns), (image,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-k", default="", help="only names that contain this")
    options = parser.parse_args()
    print(f"{'model':58} {'unfused':>9} {'fused':>9}  faster (95 %), rounds")
    for name, module, inputs in cases():
        if options.k not in name:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = torch.onnx.export(module.eval(), inputs, dynamo=True, opset_version=20, verbose=False).model_proto
        fused, report = rewriter.fuse(model)
        assert report.fused, name
        t = measure(model.SerializeToString(), fused.SerializeToString(), seconds=options.seconds,
                    threads=options.threads)
        print(f"{name:58} {t.unfused * 1e3:6.2f} ms {t.fused * 1e3:6.2f} ms  "
              f"{1 / t.ratio:.2f}x ({1 / t.high:.2f} to {1 / t.low:.2f}), {t.rounds}", flush=True)
    print(f"{options.threads} threads, ONNX Runtime {t.runtime}")


if __name__ == "__main__":
    main()
