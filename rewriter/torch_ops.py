"""Affine grids and rotations as torch operators that every exporter takes, dynamic sizes included.

    from rewriter import torch_ops

    grid = torch_ops.affine_grid(theta, size)           # size: a tensor that only the run knows, or ints
    y = torch_ops.rot_scale(x, rotations=1, scale_factor=0.5, dims="height,width")
    program = torch.onnx.export(module, args, dynamo=True, custom_translation_table=torch_ops.TRANSLATIONS, ...)
    program, report = rewriter.fuse(program)            # gives the nodes their functions: now the model runs

torch's own affine_grid fixes height and width when it is exported. For torch.onnx.export(..., dynamo=False) nothing
needs to be passed: importing this module registers what that exporter asks for. Both operators are differentiable (as
often as is asked for), compile, and run on any device, CUDA included, by torch's own operators.

Importing this module imports torch; nothing else in this package does. rewriter/docs/custom_ops.md fixes what the
exported nodes mean.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnxscript.values import Op, Opset
from torch.onnx.utils import register_custom_op_symbolic

from patterns.operators.rot90 import axes_of
from rewriter.vocabulary import DOMAIN, DOMAIN_VERSION, LOWEST_OPSET

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_ONNX_FLOATS = ["tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"]


def affine_grid(theta: torch.Tensor, size: torch.Tensor | Sequence[int], align_corners: bool = False) -> torch.Tensor:
    """`torch.nn.functional.affine_grid` whose size may be a tensor.

    Args:
        theta: [N, 2, 3] or [N, 3, 4]; float16, bfloat16, float32 or float64.
        size: (N, C, H, W) or (N, C, D, H, W): int64 tensor [4] or [5] on the CPU or theta's device, or ints. N is
            theta's or 1, C does not matter.
        align_corners: whether -1 and 1 are the centres of the outermost pixels, not their outer edges.

    Returns:
        [N, H, W, 2] or [N, D, H, W, 3], of theta's dtype and on its device; computed in float32 at least.

    Raises:
        TypeError: theta is no tensor or of another dtype, or size is neither an int64 tensor nor ints.
        ValueError: shapes or devices do not go together, or a spatial size is below 1.
    """
    _check_tensor("affine_grid", "theta", theta)
    if not isinstance(size, torch.Tensor):
        if not hasattr(size, "__iter__") or any(isinstance(n, (float, str)) for n in size):
            raise TypeError(f"affine_grid: size must be an int64 tensor or ints, not {size!r}")
        size = list(size)
        if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]  # torch has no types for it
            # ints would become constants
            size = torch.stack([torch.as_tensor(n, dtype=torch.int64) for n in size])
    operator = _affine_grid_of_tensor if isinstance(size, torch.Tensor) else _affine_grid_of_ints
    grid: torch.Tensor = operator(theta, size, bool(align_corners))
    return grid


def rot_scale(x: torch.Tensor, rotations: int = 1, scale_factor: float = 1.0, dims: str = "height,width",
              ) -> torch.Tensor:
    """Quarter turns in the plane of two axes, then a scalar factor: `torch.rot90(x, rotations, axes) * scale_factor`.

    Args:
        x: any shape of rank 2 or more; float16, bfloat16, float32 or float64.
        rotations: quarter turns from the first axis of `dims` towards the second.
        scale_factor: rounded to float32, and to x's dtype, before it multiplies, as a node's attribute is.
        dims: two comma separated axes, each "width" (the last), "height" (the last but one), "depth" (the last but
            two) or an integer.

    Raises:
        TypeError: x is no tensor or of another dtype, or an argument is of another type.
        ValueError: `dims` names no plane of x.
    """
    _check_tensor("rot_scale", "x", x)
    if isinstance(rotations, str) or int(rotations) != rotations:
        raise TypeError(f"rot_scale: rotations must be an int, not {rotations!r}")
    if isinstance(scale_factor, str) or not isinstance(dims, str):
        raise TypeError("rot_scale: scale_factor must be a number and dims a string, not "
                        f"{scale_factor!r} and {dims!r}")
    y: torch.Tensor = _rot_scale(x, int(rotations), float(scale_factor), dims)
    return y


@torch.library.custom_op("warpfuse::affine_grid", mutates_args=())
def _affine_grid_of_tensor(theta: torch.Tensor, size: torch.Tensor, align_corners: bool) -> torch.Tensor:
    _check_theta(theta, _length(theta, size))
    return _grid(theta, size.tolist(), align_corners)


@_affine_grid_of_tensor.register_fake
def _(theta: torch.Tensor, size: torch.Tensor, align_corners: bool) -> torch.Tensor:
    count = _length(theta, size)
    _check_theta(theta, count)
    context = torch.library.get_ctx()
    return theta.new_empty([theta.shape[0], *(context.new_dynamic_size(min=1) for _ in range(count - 2)), count - 2])


@torch.library.custom_op("warpfuse::affine_grid_of_ints", mutates_args=())
def _affine_grid_of_ints(theta: torch.Tensor, size: Sequence[int], align_corners: bool) -> torch.Tensor:
    _check_theta(theta, len(size))
    return _grid(theta, list(size), align_corners)


@_affine_grid_of_ints.register_fake
def _(theta: torch.Tensor, size: Sequence[int], align_corners: bool) -> torch.Tensor:
    _check_theta(theta, len(size))
    return theta.new_empty([theta.shape[0], *size[2:], len(size) - 2])


@torch.library.custom_op("warpfuse::rot_scale", mutates_args=())
def _rot_scale(x: torch.Tensor, rotations: int, scale_factor: float, dims: str) -> torch.Tensor:
    axes = _plane(x, dims)
    factor = torch.tensor(np.float32(scale_factor).item(), dtype=x.dtype)
    return (torch.rot90(x, rotations, axes) * factor.to(x.device)).contiguous()


@_rot_scale.register_fake
def _(x: torch.Tensor, rotations: int, scale_factor: float, dims: str) -> torch.Tensor:
    first, second = _plane(x, dims)
    shape = list(x.shape)
    if rotations % 2:
        shape[first], shape[second] = shape[second], shape[first]
    return x.new_empty(shape)


def _grid(theta: torch.Tensor, size: list[int], align_corners: bool) -> torch.Tensor:
    batch = theta.shape[0]
    if size[0] not in (1, batch):
        raise ValueError(f"affine_grid: size[0] is {size[0]}, theta's batch {batch}; it must be equal, or 1")
    if min(size[2:]) < 1:
        raise ValueError(f"affine_grid: spatial sizes must be 1 or more, not {size[2:]}")
    given = theta if theta.dtype == torch.float64 else theta.float()
    if batch == 0:
        return theta.new_empty([0, *size[2:], len(size) - 2])
    return torch.affine_grid_generator(given, [batch, 1, *size[2:]], align_corners).to(theta.dtype).contiguous()


def _length(theta: torch.Tensor, size: torch.Tensor) -> int:
    if size.dtype != torch.int64:
        raise TypeError(f"affine_grid: size must be int64, not {size.dtype}")
    if size.dim() != 1:
        raise ValueError(f"affine_grid: size must have one axis of 4 or 5 elements, not the shape {list(size.shape)}")
    if size.device.type != "cpu" and size.device != theta.device:
        raise ValueError(f"affine_grid: size is on {size.device}, theta on {theta.device}; size may also be on the CPU")
    return int(size.shape[0])


def _check_tensor(operator: str, name: str, value: object) -> None:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{operator}: {name} must be a torch.Tensor, not {type(value).__name__}")


def _check_theta(theta: torch.Tensor, length: int) -> None:
    if theta.dtype not in FLOATS:
        raise TypeError(f"affine_grid: theta must be float16, bfloat16, float32 or float64, not {theta.dtype}")
    if length not in (4, 5):
        raise ValueError(f"affine_grid: size must be (N, C, H, W) or (N, C, D, H, W), not {length} numbers")
    rows = length - 2
    if theta.dim() != 3 or theta.shape[1] != rows or theta.shape[2] != rows + 1:
        raise ValueError(f"affine_grid: theta must be [N, {rows}, {rows + 1}] for a size of {length} numbers, not "
                         f"{list(theta.shape)}")


def _plane(x: torch.Tensor, dims: str) -> tuple[int, int]:
    if x.dtype not in FLOATS:
        raise TypeError(f"rot_scale: x must be float16, bfloat16, float32 or float64, not {x.dtype}")
    first, second = axes_of(dims)
    rank = x.dim()
    if not (-rank <= first < rank and -rank <= second < rank) or first % rank == second % rank:
        raise ValueError(f"rot_scale: dims {dims!r} are no plane of a tensor with {rank} axes")
    return first % rank, second % rank


@torch.library.custom_op("warpfuse::affine_grid_backward", mutates_args=())
def _affine_grid_backward(grad: torch.Tensor, align_corners: bool) -> torch.Tensor:
    """grad [N, H, W, 2] to theta's [N, 2, 3]: a sum over the pixels, weighted with their coordinates and with 1."""
    count, pixels = grad.dim() - 2, tuple(range(1, grad.dim() - 1))
    wide = grad if grad.dtype == torch.float64 else grad.float()
    columns = []
    for axis in reversed(pixels):  # x, y[, z]
        n = grad.shape[axis]
        steps = 2 * torch.arange(n, device=grad.device, dtype=wide.dtype) + (1 - n)
        weights = (steps / max(n - int(align_corners), 1)).view([-1 if k == axis else 1 for k in range(count + 2)])
        columns.append((wide * weights).sum(pixels))
    return torch.stack([*columns, wide.sum(pixels)], -1).to(grad.dtype)


@_affine_grid_backward.register_fake
def _(grad: torch.Tensor, align_corners: bool) -> torch.Tensor:
    return grad.new_empty([grad.shape[0], grad.dim() - 2, grad.dim() - 1])


def _setup_grid(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.align_corners = inputs[2]


def _grid_gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    return _affine_grid_backward(grad, ctx.align_corners), None, None


def _setup_backward(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    grad, ctx.align_corners = inputs
    ctx.spatial = grad.shape[1:-1]


def _backward_gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    # what is linear has itself, turned round, for its gradient
    return _affine_grid_of_ints(grad, [1, 1, *ctx.spatial], ctx.align_corners), None


def _setup_rot_scale(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, *ctx.arguments = inputs


def _rot_scale_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
    rotations, scale_factor, dims = ctx.arguments
    return _rot_scale(grad, -rotations, scale_factor, dims), None, None, None


_affine_grid_of_tensor.register_autograd(_grid_gradient, setup_context=_setup_grid)
_affine_grid_of_ints.register_autograd(_grid_gradient, setup_context=_setup_grid)
_affine_grid_backward.register_autograd(_backward_gradient, setup_context=_setup_backward)
_rot_scale.register_autograd(_rot_scale_backward, setup_context=_setup_rot_scale)


# To nodes of custom.ops: for torch.onnx.export(..., dynamo=True, custom_translation_table=TRANSLATIONS)

def _operator(name: str, inputs: dict[str, list[str]], attributes: Sequence[onnx.defs.OpSchema.Attribute]) -> Op:
    """An operator of the domain that onnxscript can call; the result has the type of the first operand."""
    parameters = [onnx.defs.OpSchema.FormalParameter(name, "T" if allowed is _ONNX_FLOATS else allowed[0])
                  for name, allowed in inputs.items()]
    schema = onnx.defs.OpSchema(
        name, DOMAIN, DOMAIN_VERSION, inputs=parameters,
        outputs=[onnx.defs.OpSchema.FormalParameter("y", "T")], type_constraints=[("T", _ONNX_FLOATS, "floats")],
        attributes=attributes)
    return Op(Opset(DOMAIN, DOMAIN_VERSION), name, schema)


def _attribute(name: str, default: int | float | str) -> onnx.defs.OpSchema.Attribute:
    return onnx.defs.OpSchema.Attribute(name, onnx.helper.make_attribute(name, default))


_AFFINE_GRID = _operator("AffineGrid", {"theta": _ONNX_FLOATS, "size": ["tensor(int64)"]},
                         [_attribute("align_corners", 0)])
_CUSTOM_ROT_SCALE = _operator("CustomRotScale", {"x": _ONNX_FLOATS}, [
    _attribute("rotations", 1), _attribute("scale_factor", 1.0), _attribute("dims", "height,width")])


# The exporter takes what has an annotation for an attribute: the operands have none.

def _translate_grid(theta, size, align_corners: bool):  # type: ignore[no-untyped-def]  # see above
    return _AFFINE_GRID(theta, size, align_corners=int(align_corners))


def _translate_rot_scale(x, rotations: int, scale_factor: float, dims: str):  # type: ignore[no-untyped-def]  # as above
    return _CUSTOM_ROT_SCALE(x, rotations=rotations, scale_factor=scale_factor, dims=dims)


TRANSLATIONS = {
    torch.ops.warpfuse.affine_grid.default: _translate_grid,
    torch.ops.warpfuse.affine_grid_of_ints.default: _translate_grid,
    torch.ops.warpfuse.rot_scale.default: _translate_rot_scale,
}


# For torch.onnx.export(..., dynamo=False)

def _symbolic_grid(g: Any, theta: Any, size: Any, align_corners: Any) -> Any:
    from torch.onnx import symbolic_helper

    grid = g.op(f"{DOMAIN}::AffineGrid", theta, size, align_corners_i=int(symbolic_helper._maybe_get_const(
        align_corners, "b")))
    batch, axes, _ = theta.type().varyingSizes() or (None, None, None)
    if axes is not None:
        grid.setType(theta.type().with_sizes([batch, *itertools.repeat(None, axes), axes]))
    return grid


def _symbolic_rot_scale(g: Any, x: Any, rotations: Any, scale_factor: Any, dims: Any) -> Any:
    from torch.onnx import symbolic_helper

    rotations = symbolic_helper._maybe_get_const(rotations, "i")
    scale_factor = symbolic_helper._maybe_get_const(scale_factor, "f")
    dims = symbolic_helper._maybe_get_const(dims, "s")
    y = g.op(f"{DOMAIN}::CustomRotScale", x, rotations_i=rotations, scale_factor_f=scale_factor, dims_s=dims)
    shape = list(x.type().varyingSizes() or ())  # None where one is open
    if shape:
        first, second = (axis % len(shape) for axis in axes_of(dims))
        if rotations % 2:
            shape[first], shape[second] = shape[second], shape[first]
        y.setType(x.type().with_sizes(shape))
    return y


register_custom_op_symbolic("warpfuse::affine_grid", _symbolic_grid, LOWEST_OPSET)
register_custom_op_symbolic("warpfuse::rot_scale", _symbolic_rot_scale, LOWEST_OPSET)
