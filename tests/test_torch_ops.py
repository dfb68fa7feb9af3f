"""rewriter.torch_ops: values, gradients, errors, and both of torch's exporters with sizes that only the run knows."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest

import rewriter

torch = pytest.importorskip("torch")
from rewriter import torch_ops  # noqa: E402 - it imports torch

nn, F = torch.nn, torch.nn.functional
DYNAMIC = torch.export.Dim.DYNAMIC


def theta(n=2, spatial=2, dtype=torch.float64):
    return torch.eye(spatial, spatial + 1, dtype=dtype) + torch.rand(n, spatial, spatial + 1, dtype=dtype) - 0.5


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 1, 7), (2, 3, 2, 3, 4)], ids=str)
def test_affine_grid_is_torchs(size, align_corners):
    t = theta(2, len(size) - 2, torch.float32)
    want = F.affine_grid(t, size, align_corners=align_corners)
    for given in (size, torch.tensor(size), (1, *size[1:])):
        got = torch_ops.affine_grid(t, given, align_corners)
        assert got.dtype == torch.float32 and torch.equal(got, want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_rounded_once(dtype):
    t = theta(2, 2, dtype)
    got = torch_ops.affine_grid(t, (2, 1, 9, 8))
    assert torch.equal(got, F.affine_grid(t.float(), (2, 1, 9, 8), align_corners=False).to(dtype))


@pytest.mark.parametrize("dims", ["height,width", "width,height", "0,1", "depth,width", "-1,0"])
@pytest.mark.parametrize("rotations", [-1, 0, 1, 2, 3, 6])
def test_rot_scale_is_rot90_times_a_factor(rotations, dims):
    axes = {"height,width": (2, 3), "width,height": (3, 2), "0,1": (0, 1), "depth,width": (1, 3), "-1,0": (3, 0)}
    x = torch.randn(2, 3, 4, 5)
    got = torch_ops.rot_scale(x, rotations, 0.3, dims)
    assert torch.equal(got, torch.rot90(x, rotations, axes[dims]) * torch.tensor(0.3)) and got.is_contiguous()


def test_the_factor_is_rounded_as_an_attribute_is():
    x = torch.ones(1, 1, dtype=torch.float64)
    assert torch_ops.rot_scale(x, 0, 0.1).item() == float(np.float32(0.1))
    assert torch_ops.rot_scale(x.half() * 3, 0, 0.1).item() == float(np.float16(3 * np.float64(np.float16(0.1))))


def test_gradients():
    for size in ((2, 3, 4, 5), torch.tensor([1, 3, 4, 5]), (2, 1, 2, 3, 4)):
        t = theta(2, len(size) - 2).requires_grad_()
        for corners in (False, True):
            def square(t, size=size, corners=corners):
                return torch_ops.affine_grid(t, size, corners) ** 2

            assert torch.autograd.gradcheck(square, t) and torch.autograd.gradgradcheck(square, t)
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    for rotations in range(4):
        assert torch.autograd.gradcheck(lambda x, k=rotations: torch_ops.rot_scale(x, k, 1.5, "0,width") ** 2, x)
    assert torch.autograd.gradgradcheck(lambda x: torch_ops.rot_scale(x, 1, 1.5) ** 2, x)


def test_gradient_is_that_of_torchs_own():
    t, weight = theta(2, 2, torch.float32), torch.randn(2, 6, 7, 2)
    gradients = []
    for grid in (torch_ops.affine_grid, F.affine_grid):
        own = t.clone().requires_grad_()
        (grid(own, (2, 1, 6, 7), align_corners=True) * weight).sum().backward()
        gradients.append(own.grad)
    torch.testing.assert_close(*gradients)


def test_opcheck():
    t, x = theta(2, 2, torch.float32).requires_grad_(), torch.randn(2, 3, 4, 5, requires_grad=True)
    ops = torch.ops.warpfuse
    for op, arguments in (
            (ops.affine_grid, (t, torch.tensor([2, 3, 4, 5]), True)),
            (ops.affine_grid_of_ints, (t, [2, 3, 4, 5], False)),
            (ops.affine_grid_backward, (torch.randn(2, 4, 5, 2, requires_grad=True), True)),
            (ops.rot_scale, (x, 3, 1.5, "height,width"))):
        assert set(torch.library.opcheck(op.default, arguments).values()) == {"SUCCESS"}


T23, SIZE = torch.rand(2, 2, 3), torch.tensor([2, 1, 4, 5])


@pytest.mark.parametrize(("arguments", "error", "words"), [
    ((T23.int(), SIZE), TypeError, "theta must be float16.*not torch.int32"),
    ((T23, SIZE.int()), TypeError, "size must be int64, not torch.int32"),
    ((T23, SIZE[None]), ValueError, r"one axis of 4 or 5 elements, not the shape \[1, 4\]"),
    ((T23, SIZE[:3]), ValueError, "not 3 numbers"),
    ((T23, (2, 1, 3, 4, 5)), ValueError, r"theta must be \[N, 3, 4\] for a size of 5 numbers, not \[2, 2, 3\]"),
    ((T23[0], (2, 1, 3, 4)), ValueError, r"theta must be \[N, 2, 3\].*not \[2, 3\]"),
    ((T23, (3, 1, 4, 5)), ValueError, r"size\[0\] is 3, theta's batch 2"),
    ((T23, (2, 1, 0, 5)), ValueError, "spatial sizes must be 1 or more"),
    ((T23, SIZE.to("meta")), ValueError, "size is on meta, theta on cpu"),
    ((T23.numpy(), SIZE), TypeError, "theta must be a torch.Tensor, not ndarray"),
    ((T23, (2, 1, 4.0, 5)), TypeError, r"size must be an int64 tensor or ints, not \(2, 1, 4.0, 5\)"),
    ((T23, 4), TypeError, "size must be an int64 tensor or ints, not 4"),
    ((T23, (2, 1, -4, 5)), ValueError, r"spatial sizes must be 1 or more, not \[-4, 5\]"),
    ((T23[:0], (2, 1, 4, 5)), ValueError, r"size\[0\] is 2, theta's batch 0"),
])
def test_affine_grid_refuses(arguments, error, words):
    with pytest.raises(error, match=words):
        torch_ops.affine_grid(*arguments)


@pytest.mark.parametrize(("arguments", "error", "words"), [
    ((torch.ones(2, 3, dtype=torch.int64),), TypeError, "x must be float16.*not torch.int64"),
    ((torch.ones(2, 3), 1, 1.0, "rows,columns"), ValueError, "'rows,columns' are not two comma separated axes"),
    ((torch.ones(2, 3), 1, 1.0, "depth,width"), ValueError, "no plane of a tensor with 2 axes"),
    ((torch.ones(2, 3), 1, 1.0, "1,width"), ValueError, "no plane"),
    ((torch.ones(3),), ValueError, "no plane of a tensor with 1 axes"),
    (([[1.0, 2.0]],), TypeError, "x must be a torch.Tensor, not list"),
    ((torch.ones(2, 3), 1.5), TypeError, "rotations must be an int, not 1.5"),
    ((torch.ones(2, 3), "1"), TypeError, "rotations must be an int, not '1'"),
    ((torch.ones(2, 3), 1, "2"), TypeError, "scale_factor must be a number.*not '2'"),
    ((torch.ones(2, 3), 1, 1.0, (0, 1)), TypeError, r"dims a string, not 1.0 and \(0, 1\)"),
])
def test_rot_scale_refuses(arguments, error, words):
    with pytest.raises(error, match=words):
        torch_ops.rot_scale(*arguments)


class SizeOfTensor(nn.Module):
    def forward(self, theta, size, image):
        return F.grid_sample(image, torch_ops.affine_grid(theta, size), align_corners=False)


class SizeOfImage(nn.Module):
    def forward(self, theta, image):
        return F.grid_sample(image, torch_ops.affine_grid(theta, image.shape, True), align_corners=True)


class Turned(nn.Module):
    def forward(self, image):
        return torch_ops.rot_scale(torch.relu(image), rotations=3, scale_factor=0.3, dims="height,width")


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize(("module", "operator"), [
    (SizeOfTensor, "AffineGridSample"), (SizeOfImage, "AffineGridSample"), (Turned, "CustomRotScale")])
def test_dynamic_sizes_export(export, run, custom, module, operator, dynamo):
    every = {"theta": torch.rand(1, 2, 3), "size": torch.tensor([1, 3, 8, 10]), "image": torch.rand(1, 3, 8, 10)}
    code = module.forward.__code__
    names = code.co_varnames[1:code.co_argcount]
    if dynamo:
        dynamic = tuple({2: DYNAMIC, 3: DYNAMIC} if name == "image" else {} for name in names)
        options = {"custom_translation_table": torch_ops.TRANSLATIONS}
    else:
        dynamic, options = {f"in{names.index('image')}": [2, 3]}, {}
    model = export(module(), tuple(every[name] for name in names), dynamo=dynamo, dynamic=dynamic, **options)
    fused, report = rewriter.fuse(model)
    assert custom(fused) == {operator: 1} and not report.missed
    onnx.checker.check_model(fused, full_check=True)
    for image, size in (((8, 10), (8, 10)), ((13, 7), (20, 3))):
        feeds = every | {"size": torch.tensor([1, 3, *size]), "image": torch.rand(1, 3, *image)}
        given = [feeds[name] for name in names]
        (got,) = run(fused, {i.name: v.numpy() for i, v in zip(fused.graph.input, given)}).values()
        np.testing.assert_allclose(got, module()(*given).numpy(), rtol=0, atol=1e-5)


def test_an_onnx_program_is_fused_as_such(run):
    program = torch.onnx.export(Turned(), (torch.rand(1, 1, 4, 6),), dynamo=True, verbose=False,
                                custom_translation_table=torch_ops.TRANSLATIONS)
    fused, report = rewriter.fuse(program)
    assert type(fused) is type(program) and report.functions == ["CustomRotScale"]
    image = torch.randn(1, 1, 4, 6)
    (got,) = run(fused.model_proto, {fused.model_proto.graph.input[0].name: image.numpy()}).values()
    np.testing.assert_array_equal(got, Turned()(image).numpy())


def test_nothing_else_imports_torch():
    code = "import sys, rewriter, rewriter.cli, patterns; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
