"""Conventions in pixels of a size that only the run knows: theta is made with the size."""

from __future__ import annotations

import numpy as np
import pytest

import rewriter
from patterns.size_ratios import fit

torch = pytest.importorskip("torch")
SIZES = ((7, 9), (16, 12), (8, 8), (3, 131), (33, 20))
OTHERS = ((2, 2), (5, 3), (64, 48), (17, 257))


def entries(h, w):
    return np.array([[[h / w, 1, (w - 1) / w], [0, 0, 3 / (h - 1)]], [[2.5 * h, 0, 0], [0, w - 1, -7]]])


def test_the_simplest_ratios_that_fit_are_found():
    constants, ratios = fit([(size, entries(*size)) for size in SIZES])
    np.testing.assert_allclose(constants, [[[1, 1, 1], [0, 0, 3]], [[2.5, 0, 0], [0, 1, -7]]], rtol=1e-12)
    assert ratios.count() == 7
    for size in OTHERS:
        np.testing.assert_allclose(constants * ratios.at(size), entries(*size), rtol=1e-12)


@pytest.mark.parametrize("entry", [
    lambda h, w: w - 2, lambda h, w: w * w, lambda h, w: h * w, lambda h, w: 1 / (w + 1), lambda h, w: w**0.5,
    lambda h, w: 1 + 1e-5 * w, lambda h, w: w // 2])
def test_other_functions_of_the_size_are_none(entry):
    assert fit([(size, np.full((1, 2, 3), entry(*size), np.float64)) for size in SIZES]) is None


class Pixels(torch.nn.Module):
    """A warp in pixels. `end`: what coordinates are divided by is the extent less this."""

    def __init__(self, kind, end=1, rank=2):
        super().__init__()
        self.kind, self.end, self.rank = kind, end, rank

    def forward(self, matrix, x):
        spatial = x.shape[2:]
        axes = [torch.arange(n, dtype=matrix.dtype) for n in spatial]
        if self.kind != "corner":  # the centre is 0
            axes = [a - (n - 1) / 2 for a, n in zip(axes, spatial)]
        ij = torch.meshgrid(*axes, indexing="ij")
        if self.kind != "reversed":
            ij = ij[::-1]
        points = torch.stack([*ij, torch.ones_like(ij[0])], -1).reshape(1, -1, self.rank + 1) @ matrix.transpose(1, 2)
        parts = [points[..., i] for i in range(self.rank)]
        if self.kind == "reversed":
            parts = parts[::-1]
        parts = [2 * part / (n - self.end) for part, n in zip(parts, spatial[::-1])]
        if self.kind == "corner":
            parts = [part - 1 for part in parts]
        return torch.stack(parts, -1).reshape(-1, *spatial, self.rank)


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("kind", ["corner", "centre", "reversed"])
def test_pixels_of_a_size_of_the_run(export, run, custom, kind, end, rank):
    module, size = Pixels(kind, end, rank), (5, 6, 8)[-rank:]
    generator = torch.Generator().manual_seed(0)
    matrix = torch.eye(rank, rank + 1) + 0.3 * torch.randn(2, rank, rank + 1, generator=generator)
    dynamic = {"in0": [0], "in1": [0, *range(2, rank + 2)]}
    model = export(module, (matrix, torch.zeros(2, 1, *size)), dynamo=False, opset=16, dynamic=dynamic)
    fused, report = rewriter.fuse(model)
    assert custom(fused) == {"AffineGrid": 1}, [miss.reason for miss in report.missed]
    assert report.fused[0].note == "affine grid of in0, adjusted"
    assert len(fused.graph.node) < len(model.graph.node)
    for spatial in (size, *(s[-rank:] for s in ((4, 2, 2), (3, 7, 7), (6, 64, 48), (2, 3, 200)))):
        x = np.zeros((2, 1, *spatial), np.float32)
        got = run(fused, {"in0": matrix.numpy(), "in1": x})["out"]
        want = module(matrix.double(), torch.zeros(x.shape, dtype=torch.float64)).numpy()
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * np.max(np.abs(want)))
        np.testing.assert_allclose(run(model, {"in0": matrix.numpy(), "in1": x})["out"], want, rtol=0,
                                   atol=2e-6 * np.max(np.abs(want)))


@pytest.mark.parametrize("end", [2, -1])
def test_a_division_by_another_length_is_declined(export, end):
    args = torch.ones(1, 2, 3), torch.zeros(1, 1, 6, 8)
    model = export(Pixels("corner", end), args, dynamo=False, opset=16, dynamic={"in1": [2, 3]})
    fused, report = rewriter.fuse(model)
    assert fused.SerializeToString() == model.SerializeToString()
    assert any(miss.reason.endswith("what makes in0 into theta depends on the size") for miss in report.missed)
