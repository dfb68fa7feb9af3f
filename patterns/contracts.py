"""What a node that says it is an operator of ours must be, and the call that it then stands for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from patterns.operators.affine_grid import AFFINE_GRID
from patterns.operators.affine_grid_sample import AFFINE_GRID_SAMPLE
from patterns.operators.rot90 import CUSTOM_ROT_SCALE, ROT90, axes_of, canonical, dims_of
from patterns.operators.rot90_bodies import swapped
from patterns.operators.uses import size_of
from rewriter.builder import Builder
from rewriter.scopes import Scope
from rewriter.slices import FLOATS
from rewriter.vocabulary import Operator

INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)
PADDINGS = ("zeros", "border", "reflection")
MODES = {"linear": "linear", "bilinear": "linear", "cubic": "cubic", "bicubic": "cubic", "nearest": "nearest"}
UNTIL_19 = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}
KINDS = {int: (ir.AttributeType.INT, "an int"), float: (ir.AttributeType.FLOAT, "a float"),
         str: (ir.AttributeType.STRING, "a string"), list: (ir.AttributeType.INTS, "a list of ints")}


class UnfitError(Exception):
    """The node is not what its name says. `str(error)` is the reason, `tensor` the value at fault."""

    def __init__(self, reason: str, tensor: ir.Value | None = None):
        super().__init__(reason)
        self.tensor = "" if tensor is None else tensor.name or ""


@dataclasses.dataclass(frozen=True)
class Call:
    """A node by its contract: every attribute written, in the spelling of the model's opset.

    Attributes:
        inputs: operands as they are; an int32 size is still to be cast.
        shape: of the result, as far as it is known.
    """

    operator: Operator
    inputs: tuple[ir.Value, ...]
    attributes: dict[str, int | float | str | list[int]]
    dtype: ir.DataType
    shape: ir.Shape | None

    def build(self, builder: Builder) -> ir.Value:
        inputs = list(self.inputs)
        if self.operator in (AFFINE_GRID, AFFINE_GRID_SAMPLE) and builder.dtype(inputs[-1]) != ir.DataType.INT64:
            inputs[-1] = builder.op("Cast", [inputs[-1]], dtype=ir.DataType.INT64, to=int(ir.DataType.INT64))
        return builder.custom(self.operator.name, inputs, dtype=self.dtype, shape=self.shape, **self.attributes)


def affine_grid(node: ir.Node, scope: Scope) -> Call:
    theta, size = operands(node, 2)
    return grid_call(theta, size, flag(node, "align_corners"), scope)


def grid_call(theta: ir.Value, size: ir.Value, align_corners: int, scope: Scope) -> Call:
    """AffineGrid of these operands."""
    dtype = float_of(theta, "theta", scope)
    rank = _spatial(theta, size, scope)
    extent = size_of(size) or (None,) * (rank + 2)
    shape = ir.Shape([_batch(theta, extent, scope), *extent[2:], rank])
    return Call(AFFINE_GRID, (theta, size), {"align_corners": align_corners}, dtype, shape)


def affine_grid_sample(node: ir.Node, scope: Scope) -> Call:
    return sample_call(*operands(node, 3), node, scope)


def sample_call(image: ir.Value, theta: ir.Value, size: ir.Value, node: ir.Node, scope: Scope) -> Call:
    """AffineGridSample of these operands, with the attributes of `node`."""
    dtype, given = float_of(image, "x", scope), float_of(theta, "theta", scope)
    if given not in (dtype, ir.DataType.FLOAT):
        raise UnfitError(f"theta is {given}, x {dtype}", theta)
    rank, dims = _spatial(theta, size, scope), scope.measured_shape(image)
    if dims is not None and len(dims) != rank + 2:
        raise UnfitError(f"x has {len(dims)} axes, where theta and size ask for {rank + 2}", image)
    mode, padding = attribute(node, "mode", "linear"), attribute(node, "padding_mode", "zeros")
    if mode not in MODES or (MODES[mode] == "cubic" and rank == 3):
        raise UnfitError(f"mode is {mode!r}")
    if padding not in PADDINGS:
        raise UnfitError(f"padding_mode is {padding!r}")
    mode = MODES[mode] if scope.opset >= 20 else UNTIL_19[MODES[mode]]
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": flag(node, "align_corners"),
                  "grid_align_corners": flag(node, "grid_align_corners")}
    extent = size_of(size) or (None,) * (rank + 2)
    own = scope.declared_shape(image) or ir.Shape([None] * (rank + 2))
    return Call(AFFINE_GRID_SAMPLE, (image, theta, size), attributes, dtype, ir.Shape([*own[:2], *extent[2:]]))


def rot90(node: ir.Node, scope: Scope) -> Call:
    (x,) = operands(node, 1)
    dtype = scope.dtype(x)
    if dtype is None:
        raise UnfitError("the dtype of x is unknown", x)
    axes = attribute(node, "axes", [0, 1])
    if len(axes) != 2:
        raise UnfitError(f"axes are {axes}, not two")
    turn, plane, rank = _turn(attribute(node, "k", 1), axes, node, scope)
    attributes = {"k": turn, "axes": list(plane), "perm": swapped(plane, rank)}
    return Call(ROT90, (x,), attributes, dtype, _turned(x, turn, plane, scope))


def rot_scale(node: ir.Node, scope: Scope) -> Call:
    (x,) = operands(node, 1)
    dtype = float_of(x, "x", scope)
    try:
        axes = axes_of(attribute(node, "dims", "height,width"))
    except ValueError as error:
        raise UnfitError(str(error)) from None
    scale = attribute(node, "scale_factor", 1.0)
    turn, plane, rank = _turn(attribute(node, "rotations", 1), axes, node, scope)
    attributes = {"rotations": turn, "scale_factor": scale, "dims": dims_of(plane, rank), "perm": swapped(plane, rank)}
    return Call(CUSTOM_ROT_SCALE, (x,), attributes, dtype, _turned(x, turn, plane, scope))


def operands(node: ir.Node, count: int) -> Sequence[ir.Value]:
    """The inputs of a node that must have so many, and one output."""
    given = list(node.inputs)
    while given and given[-1] is None:
        given.pop()
    if len(given) != count or None in given:
        raise UnfitError(f"it has {len(given)} input{'s' * (len(given) != 1)}, not {count}")
    if len(node.outputs) != 1:
        raise UnfitError(f"it has {len(node.outputs)} outputs, not 1")
    return given


def attribute(node: ir.Node, name: str, default):
    """An attribute, which must be of the default's type."""
    found = node.attributes.get(name)
    if found is None:
        return default
    kind, words = KINDS[type(default)]
    if found.is_ref():
        raise UnfitError(f"{name} is chosen by the callers of the function around it")
    if found.type != kind:
        raise UnfitError(f"{name} is not {words}")
    if kind == ir.AttributeType.STRING:
        return found.as_string()
    return list(found.value) if kind == ir.AttributeType.INTS else found.value


def flag(node: ir.Node, name: str) -> int:
    """An int attribute that is 0 or 1."""
    value = attribute(node, name, 0)
    if value not in (0, 1):
        raise UnfitError(f"{name} is {value}, neither 0 nor 1")
    return value


def float_of(value: ir.Value, name: str, scope: Scope) -> ir.DataType:
    """The dtype of a value that must be float16, bfloat16, float32 or float64."""
    dtype = scope.dtype(value)
    if dtype not in FLOATS:
        raise UnfitError(f"the dtype of {name} is {dtype or 'unknown'}", value)
    return dtype


def _spatial(theta: ir.Value, size: ir.Value, scope: Scope) -> int:
    """How many spatial axes theta and size speak of, 2 or 3."""
    if scope.dtype(size) not in INTEGERS:
        raise UnfitError(f"size is {scope.dtype(size) or 'of unknown dtype'}, not int64", size)
    length, dims = scope.measured_shape(size), scope.measured_shape(theta)
    ranks = []
    if length is not None and (len(length) != 1 or isinstance(length[0], int)):
        if len(length) != 1 or length[0] not in (4, 5):
            raise UnfitError(f"size has the shape {list(length)}, not [4] or [5]", size)
        ranks.append(length[0] - 2)
    if dims is not None:
        known = [(rows, columns) for rows, columns in ((2, 3), (3, 4)) if len(dims) == 3
                 and dims[1] in (rows, str(dims[1])) and dims[2] in (columns, str(dims[2]))]
        if not known:
            raise UnfitError(f"theta has the shape {list(dims)}, not [N, 2, 3] or [N, 3, 4]", theta)
        ranks += [known[0][0]] if len(known) == 1 else []
    if len(set(ranks)) > 1:
        raise UnfitError(f"theta has {ranks[1]} rows, size {ranks[0]} spatial axes", size)
    if not ranks:
        raise UnfitError("neither theta nor size tells how many spatial axes there are", theta)
    return ranks[0]


def _batch(theta: ir.Value, extent: Sequence[int | None], scope: Scope) -> int | ir.SymbolicDim | None:
    own = scope.declared_shape(theta)
    batch = None if own is None else own[0]
    return batch if batch != 1 else extent[0]


def _turn(turn: int, axes: Sequence[int], node: ir.Node, scope: Scope) -> tuple[int, tuple[int, int], int]:
    """(quarter turns 0..3, two ascending axes, rank); `perm`, which an earlier run wrote, tells the rank too."""
    dims, perm = scope.measured_shape(node.inputs[0]), node.attributes.get("perm")
    rank = len(dims) if dims is not None else None
    if rank is None and perm is not None and perm.type == ir.AttributeType.INTS:
        rank = len(perm.value)
    if rank is None:
        raise UnfitError("the rank of x is unknown", node.inputs[0])
    if not all(-rank <= axis < rank for axis in axes) or axes[0] % rank == axes[1] % rank:
        raise UnfitError(f"axes {axes[0]} and {axes[1]} are no plane of a tensor of rank {rank}", node.inputs[0])
    return *canonical(turn, axes, rank), rank


def _turned(x: ir.Value, turn: int, plane: tuple[int, int], scope: Scope) -> ir.Shape | None:
    shape = scope.declared_shape(x)
    if shape is None or turn % 2 == 0:
        return shape
    perm = swapped(plane, len(shape))
    return ir.Shape([shape[axis] for axis in perm])
