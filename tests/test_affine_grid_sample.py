"""affine_grid + grid_sample: every mode, both conventions on either side, ranks, dtypes, batches, places."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rewriter

torch = pytest.importorskip("torch")
F = torch.nn.functional


class Warp(torch.nn.Module):
    def __init__(self, size=None, mode="bilinear", padding="zeros", grid_corners=False, sampler_corners=False):
        super().__init__()
        self.size, self.grid_corners = size, grid_corners
        self.options = {"mode": mode, "padding_mode": padding, "align_corners": sampler_corners}

    def forward(self, image, theta):
        size = self.size or image.shape[2:]
        grid = F.affine_grid(theta, (theta.shape[0], 1, *size), align_corners=self.grid_corners)
        return F.grid_sample(image, grid, **self.options)


def data(batch=2, channels=3, size=(12, 17), dtype=torch.float32, seed=0):
    """A smooth image, so that rounding of coordinates is not amplified, and thetas that leave it on all sides."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(batch, channels, *(3,) * len(size), generator=generator)
    image = F.interpolate(coarse, size, mode="bilinear" if len(size) == 2 else "trilinear", align_corners=True)
    rank = len(size)
    noise = torch.randn(batch, rank, rank + 1, generator=generator)
    return image.to(dtype), (1.2 * torch.eye(rank, rank + 1) + 0.3 * noise).to(dtype)


def feeds(model, *tensors):
    return {value.name: t.numpy() for value, t in zip(model.graph.input, tensors)}


@pytest.mark.parametrize("sampler_corners", [False, True])
@pytest.mark.parametrize("grid_corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_modes(export, fuses, mode, padding, grid_corners, sampler_corners):
    image, theta = data()
    module = Warp((9, 13), mode, padding, grid_corners, sampler_corners)
    model = export(module, (image, theta), opset=20)
    fused, _ = fuses(model, feeds(model, image, theta), {"AffineGridSample": 1}, reference=[module(image, theta)])
    (node,) = [n for n in fused.graph.node if n.domain]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    spelled = {"bilinear": b"linear", "bicubic": b"cubic"}.get(mode, mode.encode())
    assert {k: attributes[k] for k in ("mode", "padding_mode", "align_corners", "grid_align_corners")} == {
        "mode": spelled, "padding_mode": padding.encode(), "align_corners": sampler_corners,
        "grid_align_corners": grid_corners}


@pytest.mark.parametrize("opset", [18, 20, 22, 23])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_modes_are_spelled_as_the_opset_does(export, fuses, mode, opset):
    image, theta = data()
    module = Warp(mode=mode)
    model = export(module, (image, theta), opset=opset)
    fused, _ = fuses(model, feeds(model, image, theta), {"AffineGridSample": 1}, reference=[module(image, theta)])
    (node,) = [n for n in fused.graph.node if n.domain]
    spelled = {a.name: a.s.decode() for a in node.attribute}["mode"]
    assert spelled == (mode if opset < 20 else mode.removeprefix("bi"))


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_three_dimensions(export, fuses, mode, corners):
    image, theta = data(size=(5, 6, 7))
    module = Warp(mode=mode, grid_corners=corners, sampler_corners=corners)
    model = export(module, (image, theta), opset=20)
    fuses(model, feeds(model, image, theta), {"AffineGridSample": 1}, reference=[module(image, theta)])


@pytest.mark.parametrize("corners", [False, True])
def test_dynamic_batch(export, fuses, corners):
    module = Warp(grid_corners=corners, sampler_corners=corners)
    model = export(module, data(), opset=18, dynamic=({0: "N"}, {0: "N"}))
    for batch in (1, 5):
        image, theta = data(batch)
        fuses(model, feeds(model, image, theta), {"AffineGridSample": 1}, reference=[module(image, theta)])


@pytest.mark.parametrize("corners", [False, True])
def test_float64(export, fuses, corners):
    image, theta = data(dtype=torch.float64)
    module = Warp(grid_corners=corners, sampler_corners=corners)
    model = export(module, (image, theta), opset=20)
    fuses(model, feeds(model, image, theta), {"AffineGridSample": 1}, reference=[module(image, theta)], atol=1e-12)


def test_float16_is_more_exact_fused(export, run):
    image, theta = data(size=(40, 50), dtype=torch.float16)
    module = Warp()
    model = export(module, (image, theta), opset=20)
    fused, _ = rewriter.fuse(model)
    exact = module(image.double(), theta.double()).numpy()
    (before,), (after,) = (run(m, feeds(model, image, theta)).values() for m in (model, fused))
    assert after.dtype == np.float16
    assert np.abs(after - exact).max() <= min(np.abs(before - exact).max(), 1e-3)


def test_one_grid_with_two_samplers_stays_a_grid(export, fuses):
    class Net(torch.nn.Module):
        def forward(self, a, b, theta):
            grid = F.affine_grid(theta, a.shape, align_corners=False)
            return F.grid_sample(a, grid, align_corners=False), F.grid_sample(b, grid, align_corners=False)

    (a, theta), (b, _) = data(), data(seed=1)
    model = export(Net(), (a, b, theta), opset=20)
    fuses(model, feeds(model, a, b, theta), {"AffineGrid": 1}, reference=Net()(a, b, theta))


def test_the_grid_as_an_output_survives(export, fuses):
    class Net(torch.nn.Module):
        def forward(self, image, theta):
            grid = F.affine_grid(theta, image.shape, align_corners=False)
            return F.grid_sample(image, grid, align_corners=False), grid

    image, theta = data()
    model = export(Net(), (image, theta), opset=20)
    fused, report = fuses(model, feeds(model, image, theta), {"AffineGrid": 1}, reference=Net()(image, theta))
    assert [o.name for o in fused.graph.output] == [o.name for o in model.graph.output]
    assert any("needed elsewhere" in m.reason for m in report.missed)


def test_a_shared_base_and_a_submodule_called_twice(export, fuses):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.warp = Warp()

        def forward(self, image, a, b):
            return self.warp(self.warp(image, a), b)

    (image, a), (_, b) = data(), data(seed=1)
    model = export(Net(), (image, a, b), opset=20)
    fuses(model, feeds(model, image, a, b), {"AffineGridSample": 2}, reference=[Net()(image, a, b)])


def test_inside_a_branch(export, fuses):
    class Net(torch.nn.Module):
        def forward(self, flag, image, theta):
            return torch.cond(flag, lambda x, t: Warp()(x, t), lambda x, t: x * 2, (image, theta))

    image, theta = data(size=(6, 6))
    model = export(Net(), (torch.tensor(True), image, theta), opset=18)
    for flag in (True, False):
        values = feeds(model, torch.tensor(flag), image, theta)
        fuses(model, values, {"AffineGridSample": 1}, reference=[Net()(torch.tensor(flag), image, theta)])


def test_a_constant_theta_gives_up_its_grid(export, fuses):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("theta", data(batch=1)[1])

        def forward(self, image):
            return Warp((64, 48))(image, self.theta.expand(2, -1, -1))

    image, _ = data()
    model = export(Net(), (image,), opset=20)
    fused, _ = fuses(model, feeds(model, image), {"AffineGridSample": 1}, reference=[Net()(image)])
    assert len(fused.SerializeToString()) < len(model.SerializeToString()) / 3


def constant_grid_model(grid: np.ndarray) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("GridSample", ["x", "grid"], ["y"])], "constant",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [len(grid), 1, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [len(grid), 1, *grid.shape[1:3]])],
        [onnx.numpy_helper.from_array(grid, "grid")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_constant_grids_of_different_samples(fuses):
    _, theta = data()
    grid = F.affine_grid(theta, (2, 1, 40, 30), align_corners=True).numpy()
    image = data(channels=1, size=(8, 8))[0].numpy()
    fuses(constant_grid_model(grid), {"x": image}, {"AffineGridSample": 1})


def test_an_image_of_integers_keeps_its_sampler(custom):
    """ONNX allows it; no kernel of the sampler would have it."""
    nodes = [helper.make_node("AffineGrid", ["theta", "size"], ["grid"]),
             helper.make_node("GridSample", ["x", "grid"], ["y"], mode="nearest")]
    inputs = [helper.make_tensor_value_info("theta", TensorProto.FLOAT, [1, 2, 3]),
              helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 3, 8, 9])]
    size = numpy_helper.from_array(np.array([1, 3, 5, 7]), "size")
    output = helper.make_tensor_value_info("y", TensorProto.UINT8, [1, 3, 5, 7])
    graph = helper.make_graph(nodes, "g", inputs, [output], [size])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    fused, report = rewriter.fuse(model)
    assert custom(fused) == {"AffineGrid": 1}
    assert "the image is UINT8, and the sampler is for floats" in [miss.reason for miss in report.missed]
