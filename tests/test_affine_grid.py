"""affine_grid in the spellings that exporters and people write, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import rewriter

torch = pytest.importorskip("torch")
F = torch.nn.functional
SIZE = (7, 9)


class Grid(torch.nn.Module):
    def __init__(self, size, align_corners):
        super().__init__()
        self.size, self.align_corners = size, align_corners

    def forward(self, theta):
        return F.affine_grid(theta, (theta.shape[0], 1, *self.size), align_corners=self.align_corners)


def thetas(batch, rank, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(batch, rank, rank + 1, generator=generator, dtype=torch.float64)
    return (torch.eye(rank, rank + 1, dtype=torch.float64) + 0.3 * noise).to(dtype)


def axis(n, align_corners):
    base = torch.linspace(-1, 1, n) if align_corners else (2 * torch.arange(n) + 1) / n - 1
    return base.float()


def base(size, align_corners):
    """[H, W, 3] columns (x, y, 1)."""
    y, x = torch.meshgrid(axis(size[0], align_corners), axis(size[1], align_corners), indexing="ij")
    return torch.stack([x, y, torch.ones_like(x)], dim=-1)


@pytest.mark.parametrize("opset", [18, 20, 22, 23])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [SIZE, (16, 16), (40, 33), (4, 5, 6)])
def test_dynamo_export(export, fuses, size, align_corners, opset):
    theta = thetas(2, len(size))
    module = Grid(size, align_corners)
    model = export(module, (theta,), opset=opset)
    fused, report = fuses(model, {"theta": theta.numpy()}, {"AffineGrid": 1}, reference=[module(theta)])
    assert report.fused[0].note == "affine grid of theta"
    assert not [n for n in fused.graph.node if n.op_type not in ("Constant", "AffineGrid")]


@pytest.mark.parametrize("align_corners", [False, True])
def test_dynamo_export_without_the_exporters_optimizer(export, fuses, align_corners):
    theta, module = thetas(2, 2), Grid(SIZE, align_corners)
    model = export(module, (theta,), optimize=False)
    fuses(model, {"theta": theta.numpy()}, {"AffineGrid": 1}, reference=[module(theta)])


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(64, 48), (4, 5, 6)])
def test_dynamic_batch(export, fuses, size, align_corners):
    module = Grid(size, align_corners)
    model = export(module, (thetas(3, len(size)),), dynamic={"theta": {0: "N"}})
    for batch in (1, 4):
        theta = thetas(batch, len(size), seed=batch)
        fuses(model, {"theta": theta.numpy()}, {"AffineGrid": 1}, reference=[module(theta)])


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_dtypes(export, fuses, dtype):
    theta, module = thetas(2, 2, getattr(torch, dtype)), Grid((20, 30), False)
    model = export(module, (theta,), opset=20)
    exact = F.affine_grid(theta.double(), (2, 1, 20, 30), align_corners=False)
    atol = {"float16": 1e-3, "float64": 1e-12}[dtype]
    fuses(model, {"theta": theta.numpy()}, {"AffineGrid": 1}, reference=[exact], atol=atol)


def hand_matmul_last(theta, b):  # [N, H*W, 3] @ [N, 3, 2]
    h, w = b.shape[:2]
    return (b.reshape(1, h * w, 3) @ theta.transpose(1, 2)).reshape(-1, h, w, 2)


def hand_matmul_first(theta, b):  # [N, 2, 3] @ [N, 3, H*W], channel first, then permuted
    h, w = b.shape[:2]
    return (theta @ b.reshape(h * w, 3).t().unsqueeze(0)).reshape(-1, 2, h, w).permute(0, 2, 3, 1)


def hand_einsum(theta, b):
    return torch.einsum("hwk,nok->nhwo", b, theta)


def hand_einsum_flat(theta, b):
    h, w = b.shape[:2]
    return torch.einsum("bij,kj->bki", theta, b.reshape(h * w, 3)).reshape(-1, h, w, 2)


def hand_broadcast(theta, b):
    x, y = b[None, :1, :, 0:1], b[None, :, :1, 1:2]
    t = theta[:, None, None]
    return x * t[..., 0] + y * t[..., 1] + t[..., 2]


def hand_ones_first(theta, b):  # base [1, x, y], theta's columns rolled to match
    rolled = torch.cat([theta[:, :, 2:], theta[:, :, :2]], dim=2)
    return hand_matmul_last(rolled, torch.cat([b[..., 2:], b[..., :2]], dim=-1))


def hand_baddbmm(theta, b):
    h, w = b.shape[:2]
    xy = b[..., :2].reshape(1, h * w, 2).expand(theta.shape[0], -1, -1)
    return torch.baddbmm(theta[:, None, :, 2], xy, theta[:, :, :2].transpose(1, 2)).reshape(-1, h, w, 2)


def hand_homogeneous(theta, b):  # a 3x3 matrix whose last row is dropped
    last = torch.tensor([[[0.0, 0.0, 1.0]]]).expand(theta.shape[0], -1, -1)
    return hand_matmul_last(torch.cat([theta, last], dim=1)[:, :2], b)


def hand_pixels(theta, b):  # base in pixels, theta divided by the half size
    h, w = b.shape[:2]
    scale = torch.tensor([0.5 * w, 0.5 * h, 1.0])
    pixels = b * scale
    return hand_matmul_last(theta / scale, pixels)


HAND = [hand_matmul_last, hand_matmul_first, hand_einsum, hand_einsum_flat, hand_broadcast, hand_ones_first,
        hand_baddbmm, hand_homogeneous, hand_pixels]


class Hand(torch.nn.Module):
    def __init__(self, form, size, align_corners):
        super().__init__()
        self.form = form
        self.register_buffer("base", base(size, align_corners))

    def forward(self, theta):
        return self.form(theta, self.base)


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("form", HAND)
def test_hand_written(export, fuses, form, align_corners, dynamo):
    theta = thetas(2, 2)
    module = Hand(form, SIZE, align_corners)
    model = export(module, (theta,), dynamo=dynamo, opset=18 if dynamo else 13)
    name = model.graph.input[0].name
    wanted = F.affine_grid(theta, (2, 1, *SIZE), align_corners=align_corners)
    fused, _ = fuses(model, {name: theta.numpy()}, {"AffineGrid": 1}, reference=[wanted])
    attributes = {a.name: a.i for n in fused.graph.node if n.domain for a in n.attribute}
    assert attributes["align_corners"] == align_corners


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [SIZE, (4, 5, 6)])
def test_torchscript_affine_grid_operator(export, fuses, size, align_corners):
    theta, module = thetas(2, len(size)), Grid(size, align_corners)
    model = export(module, (theta,), dynamo=False, opset=20)
    assert [n.op_type for n in model.graph.node if n.op_type != "Constant"][-1] == "AffineGrid"
    fuses(model, {"in0": theta.numpy()}, {"AffineGrid": 1}, reference=[module(theta)])


class Adjusted(torch.nn.Module):
    """Affine, but not affine_grid of its parameters: theta has to be computed from them."""

    def __init__(self, change):
        super().__init__()
        self.change = change
        self.register_buffer("base", base(SIZE, False))

    def forward(self, theta):
        return self.change(theta, self.base)


ADJUSTED = {
    "swapped": lambda t, b: hand_matmul_last(t, b[..., [1, 0, 2]]),
    "range 0..1": lambda t, b: hand_matmul_last(t, b * 0.5 + 0.5 * torch.tensor([1.0, 1.0, 0.0]) + b[..., 2:] * 0),
    "half ones": lambda t, b: hand_matmul_last(t, b * torch.tensor([1.0, 1.0, 0.5])),
    "upside down": lambda t, b: hand_matmul_last(t, b * torch.tensor([1.0, -1.0, 1.0])),
    "scaled after": lambda t, b: hand_matmul_last(t, b) * 0.5 + 0.1,
    "reversed after": lambda t, b: hand_matmul_last(t, b).flip(-1),
    "mean": lambda t, b: (b.reshape(1, -1, 3, 1) * t.transpose(1, 2)[:, None]).mean(-2).reshape(-1, *SIZE, 2),
    "scale and shift": lambda t, b: b[None, ..., :2] * t[:, None, None, :, 0] + t[:, None, None, :, 2],
}


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
@pytest.mark.parametrize("change", ADJUSTED)
def test_adjusted_theta(export, fuses, change, dynamo):
    theta, module = thetas(2, 2), Adjusted(ADJUSTED[change])
    model = export(module, (theta,), dynamo=dynamo, opset=18 if dynamo else 16)
    name = model.graph.input[0].name
    fused, report = fuses(model, {name: theta.numpy()}, {"AffineGrid": 1}, reference=[module(theta)])
    assert "adjusted" in report.fused[0].note
    assert len([n for n in fused.graph.node if n.op_type != "Constant"]) <= 6


class Angle(torch.nn.Module):
    """No theta tensor at all: cos and sin multiply the axes."""

    def forward(self, angle):
        b = base(SIZE, True)
        c, s = angle.cos()[:, None, None], angle.sin()[:, None, None]
        x, y = b[None, ..., 0], b[None, ..., 1]
        return torch.stack([c * x - s * y, s * x + c * y], dim=-1)


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_parameters_in_several_values(export, fuses, dynamo):
    angle, module = torch.tensor([0.3, -1.2]), Angle()
    model = export(module, (angle,), dynamo=dynamo, opset=18 if dynamo else 16)
    fuses(model, {model.graph.input[0].name: angle.numpy()}, {"AffineGrid": 1}, reference=[module(angle)])


@pytest.mark.parametrize("rank", [2, 3])
def test_a_size_that_affine_grid_takes_is_taken_as_it_is(run, rank):
    dims = ["N", *"DHW"[-rank:], rank]
    node = helper.make_node("AffineGrid", ["theta", "size"], ["grid"], align_corners=1)
    inputs = [helper.make_tensor_value_info("theta", TensorProto.FLOAT, ["N", rank, rank + 1]),
              helper.make_tensor_value_info("size", TensorProto.INT64, [rank + 2])]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("grid", TensorProto.FLOAT, dims)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    fused, _ = rewriter.fuse(model)
    assert [(n.op_type, *n.input) for n in fused.graph.node] == [("AffineGrid", "theta", "size")]
    theta = np.random.default_rng(0).standard_normal((2, rank, rank + 1)).astype(np.float32)
    for spatial in ((5, 7, 3)[-rank:], (2, 31, 4)[-rank:]):
        feeds = {"theta": theta, "size": np.array([2, 3, *spatial])}
        np.testing.assert_allclose(run(fused, feeds)["grid"], run(model, feeds)["grid"], atol=2e-6)
