"""--follow-input-size: models of fixed height and width run at every size, as PyTorch does, or are left alone."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rewriter
from rewriter.cli import main

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
SIZE, OTHERS = (24, 32), [(24, 32), (17, 41), (50, 9)]
THETA = torch.tensor([[[0.9, -0.2, 0.05], [0.2, 0.8, -0.05]]])


def warp(x, theta, corners=False):
    return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=corners), align_corners=corners)


class Module(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def image(size=SIZE, n=1, c=3):
    return torch.rand(n, c, *size)


def follows(model, module, arguments, run, *, others=OTHERS, dims=("height", "width")):
    """Fuse; the declared dims are open; values are PyTorch's at several sizes. Tensors of 4 or 5 axes are images."""
    fused, report = rewriter.fuse(model, follow_input_size=True)
    assert [f.pattern for f in report.fused].count("follow_input_size") >= 1, [m.reason for m in report.missed]
    onnx.checker.check_model(fused, full_check=True)
    again, second = rewriter.fuse(fused, follow_input_size=True)
    assert not second.changed and again == fused
    for value, given in zip(fused.graph.input, arguments):
        if given.dim() > 3:
            assert tuple(dim.dim_param for dim in value.type.tensor_type.shape.dim[2:]) == dims
    for size in others:
        feeds = [torch.rand(*a.shape[:2], *size) if a.dim() > 3 else a for a in arguments]
        with torch.no_grad():
            want = module(*feeds)
        got = run(fused, {i.name: v.numpy() for i, v in zip(fused.graph.input, feeds)})
        for g, w in zip(got.values(), want if isinstance(want, tuple) else (want,)):
            np.testing.assert_allclose(g, w.numpy(), rtol=0, atol=1e-4)
    return fused, report


def declines(model, reason, **options):
    fused, report = rewriter.fuse(model, follow_input_size=True, **options)
    assert all(f.pattern != "follow_input_size" for f in report.fused)
    reasons = [m.reason for m in report.missed if m.pattern == "follow_input_size"]
    assert any(reason in r for r in reasons), reasons
    plain, _ = rewriter.fuse(model, **options)
    assert fused == plain


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("dynamo", [True, False])
def test_a_sampler_follows_its_image(export, run, custom, dynamo, corners):
    module, arguments = Module(lambda x, t: warp(x, t, corners)), (image(), THETA)
    model = export(module, arguments, dynamo=dynamo, opset=20)
    fused, report = follows(model, module, arguments, run)
    assert custom(fused) == {"AffineGridSample": 1} == {"AffineGridSample": report.count("AffineGridSample")}
    assert report.fused[-1].note.startswith("AffineGridSample follows the size of ")
    assert not report.missed


def test_only_where_asked_for(export):
    fused, _ = rewriter.fuse(export(Module(warp), (image(), THETA)))
    assert [d.dim_value for d in fused.graph.input[0].type.tensor_type.shape.dim] == [1, 3, *SIZE]


def test_a_grid_follows_the_image_of_its_sampler(export, run, custom):
    arguments = (image(), THETA)
    model = export(Module(warp), arguments)
    fused, report = rewriter.fuse(model, patterns=["affine_grid"], follow_input_size=True)
    assert custom(fused) == {"AffineGrid": 1} and report.fused[-1].pattern == "follow_input_size"
    for size in OTHERS:
        x = image(size)
        (got,) = run(fused, {i.name: v.numpy() for i, v in zip(fused.graph.input, (x, THETA))}).values()
        np.testing.assert_allclose(got, warp(x, THETA).numpy(), rtol=0, atol=1e-4)


def test_volumes(export, run):
    theta = torch.eye(3, 4)[None] + 0.1 * torch.rand(1, 3, 4)
    arguments = (torch.rand(1, 2, 4, 6, 5), theta)
    follows(export(Module(warp), arguments, opset=20), Module(warp), arguments, run,
            others=[(4, 6, 5), (3, 9, 2), (7, 1, 8)], dims=("depth", "height", "width"))


class Net(nn.Module):
    """theta comes from the image; layers before and behind the sampler; two outputs, two samplers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.before, self.behind = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 3, stride=2, padding=1)
        self.regress = nn.Linear(8, 6)
        self.regress.bias.data = THETA.flatten().clone()

    def forward(self, x):
        features = F.relu(self.before(x))
        theta = self.regress(features.mean((2, 3))).view(-1, 2, 3)
        turned = torch.rot90(warp(features, theta, True), 1, (2, 3))
        return F.relu(self.behind(turned)), warp(x, theta).amax((2, 3))


def test_a_network(export, run, custom):
    arguments = (image(),)
    fused, _ = follows(export(Net(), arguments), Net().eval(), arguments, run)
    assert custom(fused) == {"AffineGridSample": 2, "Rot90": 1}
    assert [d.dim_value or d.dim_param for d in fused.graph.output[1].type.tensor_type.shape.dim] == [1, 3]
    assert all(not d.dim_value for d in fused.graph.output[0].type.tensor_type.shape.dim[2:])


def test_the_batch_may_be_open_already(export, run):
    n = torch.export.Dim("n")
    arguments = (image(n=2), THETA.repeat(2, 1, 1))
    model = export(Module(warp), arguments, dynamic=(({0: n}, {0: n}),))
    fused, _ = follows(model, Module(warp), arguments, run)
    x, theta = image((11, 12), n=5), THETA.repeat(5, 1, 1)
    (got,) = run(fused, {i.name: v.numpy() for i, v in zip(fused.graph.input, (x, theta))}).values()
    np.testing.assert_allclose(got, warp(x, theta).numpy(), rtol=0, atol=1e-4)


def test_an_image_that_is_made_of_another_size(export, run):
    """The sampler's image is half as large as the input: it follows, and the output's symbol is no input's."""
    def function(x, t):
        return warp(F.max_pool2d(x, 2), t)

    arguments = (image(), THETA)
    fused, _ = follows(export(Module(function), arguments), function, arguments, run)
    assert not any(d.dim_param in ("height", "width") for d in fused.graph.output[0].type.tensor_type.shape.dim)


def test_another_input_that_must_be_as_large(export, run):
    def function(x, t, mask):
        return warp(x, t) * mask

    arguments = (image(), THETA, image())
    follows(export(Module(function), arguments), function, arguments, run)


def test_even_pads_and_flattening_of_whole_axes(export, run):
    def function(x, t):
        return F.pad(warp(x, t), (1, 1, 2, 2), "reflect").reshape(1, 3, -1)

    arguments = (image(), THETA)
    follows(export(Module(function), arguments), function, arguments, run)


def test_a_name_that_is_taken(export, run):
    n = torch.export.Dim("height")
    arguments = (image(n=2), THETA.repeat(2, 1, 1))
    model = export(Module(warp), arguments, dynamic=(({0: n}, {0: n}),))
    follows(model, Module(warp), arguments, run, dims=("height_1", "width"))


H, W = SIZE
EMBEDDING = torch.rand(1, 1, H, W)
PIXELS, PLACES, WEIGHTS = torch.tensor([2 / W, 2 / H]), torch.tensor([0, 5, 31]), torch.ones(3 * H * W, 2)


def pixel_shift(x, t):
    shift = (t[:, :, 2:] * PIXELS[:, None])
    return warp(x, torch.cat([t[:, :, :2], shift], -1))


def in_pixels(x, t):
    ys, xs = torch.meshgrid(torch.arange(H) - (H - 1) / 2, torch.arange(W) - (W - 1) / 2, indexing="ij")
    base = torch.stack([xs, ys, torch.ones_like(xs)], -1).reshape(1, H * W, 3)
    return F.grid_sample(x, (base @ t.transpose(1, 2)).reshape(1, H, W, 2), align_corners=False)


@pytest.mark.parametrize(("function", "reason"), [
    (lambda x, t: warp(x, t).flatten(1) @ WEIGHTS, "has the fixed shape"),
    (lambda x, t: warp(x, t) + EMBEDDING, "shapes do not go together at another size"),
    (lambda x, t: warp(x, t)[..., : W // 2], "cuts [0:16] from an axis whose size is open"),
    (lambda x, t: F.interpolate(warp(x, t), (H // 2, W // 2)), "makes a fixed size"),
    (lambda x, t: F.avg_pool2d(warp(x, t), (H, W)), "has a window of [24, 32], as large as the image"),
    (lambda x, t: warp(x, t).reshape(1, 3, H // 8, 8, W // 8, 8).sum(3), "has the fixed shape"),
    (lambda x, t: warp(x, t).reshape(-1, W), "which may hold the size"),
    (lambda x, t: warp(x, t).index_select(3, PLACES), "takes fixed places of an axis"),
    (lambda x, t: warp(x, t)[..., PLACES], "has indices that may be made for the size"),
    (lambda x, t: torch.split(warp(x, t), [10, 22], 3)[1], "shapes do not go together at another size"),
    (lambda x, t: warp(x, t).mean() + F.grid_sample(x, F.affine_grid(t, (1, 3, 9, 8), align_corners=False)),
     "makes a fixed size of an image whose size is open"),
    (lambda x, t: warp(x, t) + F.grid_sample(x, t[:, :1, None, :2]),
     "samples at a grid of fixed size"),
    (lambda x, t: F.pad(warp(x, t), (0, 0, 0, 8)), "pads an axis by 0 and 8, which may make up a size"),
    (lambda x, t: warp(x, t).sum((2, 3)) / (H * W), "which may have been made of the size"),
    (lambda x, t: warp(x, t / W ** 0.5), "computes with 5.65685, which may have been made of the size"),
    (lambda x, t: warp(x, t) / math.log(H), "computes with 3.17805, which may have been made of the size"),
    (lambda x, t: warp(x, t).square().sum((2, 3)) / (H * W - 1), "computes with 767, which may have been"),
    (lambda x, t: warp(x, t).clamp(max=float(H)), "computes with 24, which may have been made of the size"),
    (lambda x, t: F.adaptive_max_pool2d(warp(x, t), 4).amax((2, 3)), "has windows of [6, 8] that cut the image"),
    (pixel_shift, "which may have been made of the size"),
    (in_pixels, "theta is adjusted by numbers that were computed for this size"),
], ids=["flatten", "embedding", "crop", "resize", "pool", "patches", "rows", "places", "index", "split", "two_sizes",
        "grid", "uneven_pad", "mean", "root", "logarithm", "variance", "clamp", "adaptive_pool", "pixel_shift",
        "pixels"])
def test_what_depends_on_the_size(export, function, reason):
    declines(export(Module(function), (image(), THETA)), reason)


def test_another_output_size(export):
    def function(x, t):
        return F.grid_sample(x, F.affine_grid(t, (1, 3, 30, 20), align_corners=False), align_corners=False)

    declines(export(Module(function), (image(), THETA)), "its size 30x20 is not its image's, 24x32")


def test_a_grid_that_is_an_output(export):
    def function(t):
        return F.affine_grid(t, (1, 3, 24, 32), align_corners=False)

    declines(export(Module(function), (THETA,)), "what it makes does not only go to a sampler")


def test_foreign_operators_and_bodies(export):
    model = export(Module(warp), (image(), THETA))
    model.opset_import.add(domain="other", version=1)
    output = model.graph.output[0].name
    model.graph.node.add(op_type="Thing", domain="other", input=[output], output=["z"], name="thing")
    model.graph.output.add().name = "z"
    model.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    model.graph.output[1].type.tensor_type.shape.dim.add(dim_param="many")
    declines(model, "thing (Thing) is of the domain other, which is not known")


@pytest.mark.parametrize("inside", [False, True], ids=["a body reads the image", "the sampler is in a body"])
def test_bodies_are_not_looked_into(inside):
    """What a body captures is no operand of its node, and still moves with the size."""
    size = numpy_helper.from_array(np.array([1, 3, 8, 8]), "size")
    rows = numpy_helper.from_array(np.array([1, -1, 8]), "r")
    grid = helper.make_node("AffineGrid", ["theta", "size"], ["grid"], name="grid")
    sampler = helper.make_node("GridSample", ["x", "grid"], ["s"])

    def branch(name):
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        if inside:
            nodes = [helper.make_node("Relu", ["x"], [f"{name}_x"]),
                     helper.make_node("GridSample", [f"{name}_x", "grid"], [name])]
        else:
            nodes = [helper.make_node("Reshape", ["s", "r"], [name])]
        return helper.make_graph(nodes, name, [], [info])

    choice = helper.make_node("If", ["cond"], ["y"], name="choice", then_branch=branch("a"), else_branch=branch("b"))
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8]),
             helper.make_tensor_value_info("theta", TensorProto.FLOAT, [1, 2, 3]),
             helper.make_tensor_value_info("cond", TensorProto.BOOL, [])]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 8, 8] if inside else [1, 24, 8])
    nodes = [grid, choice] if inside else [grid, sampler, choice]
    graph = helper.make_graph(nodes, "g", infos, [output], [size, rows])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    fused, report = rewriter.fuse(model, follow_input_size=True)
    assert [d.dim_value for d in fused.graph.input[0].type.tensor_type.shape.dim] == [1, 3, 8, 8]
    reasons = [miss.reason for miss in report.missed if miss.pattern == "follow_input_size"]
    assert inside or any("has a body, which is not looked into" in reason for reason in reasons), reasons


def test_the_command_line(export, tmp_path, capsys, run):
    onnx.save(export(Module(warp), (image(), THETA)), tmp_path / "m.onnx")
    assert main([str(tmp_path / "m.onnx"), str(tmp_path / "f.onnx"), "--follow-input-size"]) == 0
    assert "AffineGridSample follows the size of" in capsys.readouterr().out
    model, x = onnx.load(tmp_path / "f.onnx"), image((9, 8))
    (got,) = run(model, {i.name: v.numpy() for i, v in zip(model.graph.input, (x, THETA))}).values()
    np.testing.assert_allclose(got, warp(x, THETA).numpy(), rtol=0, atol=1e-4)
