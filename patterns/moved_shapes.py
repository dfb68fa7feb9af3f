"""What becomes of a model's shapes when sizes of its inputs change: inferred at several sizes, and what speaks against.

Shapes alone do not tell whether a number was computed from the old size: Reshape to [1, -1, 512] runs at other sizes
too. So operators that are given such numbers are asked for more: that axes which move stay whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx_ir as ir

from patterns.operators.uses import size_of
from rewriter.graphs import bodies, captured, constant_integers
from rewriter.scopes import Scope
from rewriter.shapes import skeleton
from rewriter.vocabulary import DOMAIN

Dims = tuple[int, ...]
OTHERS = 2  # what dims that are open already are taken for
FAR = 1 << 30  # bounds of a Slice beyond it mean the end
LEAST_TILE, MOST_TILES = 3, 8  # windows that may be adaptive pooling's: at least so long, at most so many
POOLS = ("AveragePool", "MaxPool", "LpPool", "Conv", "ConvTranspose")
INDEXED = ("GatherElements", "GatherND", "ScatterElements", "ScatterND", "TopK", "OneHot", "MaxUnpool", "RoiAlign")


class FixedError(Exception):
    """Something in the model depends on the size that it was exported with. `tensor` is its name there."""

    def __init__(self, reason: str, tensor: str):
        super().__init__(reason)
        self.tensor = tensor


class MovedShapes:
    """Shapes of all values of the main graph at several sizes of its inputs; the first are those of the model.

    Raises:
        FixedError: the model does not allow other sizes, or it is not known to.
    """

    def __init__(self, scope: Scope, sizes: Sequence[Mapping[tuple[str, int], int]], followed: Mapping[str, str]):
        """
        Args:
            sizes: (name of an input, axis) -> length, for each trial.
            followed: nodes of ours that take their size from an image: name of the result -> name of the image.
        """
        self._scope = scope
        self._trials = [_inferred(scope, given, followed) for given in sizes]
        for node in scope.graph:
            read = [*node.inputs, *(value for body in bodies(node) for value in captured(body))]
            if any(value is not None and self.moves(value) for value in read):
                self._check(node, followed)

    def dims(self, value: ir.Value) -> list[Dims]:
        """The shape of a value in each trial.

        Raises:
            FixedError: it is not known.
        """
        if value.const_value is not None and not value.is_graph_input():
            return [tuple(int(n) for n in value.const_value.shape)] * len(self._trials)
        found = [trial.get(value.name) for trial in self._trials]
        if any(shape is None for shape in found):
            raise FixedError(f"the shape of {value.name} is not known for other sizes", value.name or "")
        return found

    def moves(self, value: ir.Value) -> bool:
        """Whether the shape depends on the size."""
        return len({trial.get(value.name) for trial in self._trials}) > 1

    def moving_axes(self, value: ir.Value) -> list[int]:
        return [axis for axis, lengths in enumerate(zip(*self.dims(value))) if len(set(lengths)) > 1]

    def _check(self, node: ir.Node, followed: Mapping[str, str]) -> None:
        result = node.outputs[0]
        if bodies(node):
            raise FixedError(f"{_label(node)} has a body, which is not looked into", result.name or "")
        if node.domain not in ("", DOMAIN):
            raise FixedError(f"{_label(node)} is of the domain {node.domain}, which is not known", result.name or "")
        for value in node.outputs:
            self.dims(value)
        if node.domain == DOMAIN:
            if node.op_type.startswith("AffineGrid") and result.name not in followed:
                raise FixedError(f"{_label(node)} makes a fixed size of an image whose size is open", result.name or "")
        elif (rule := RULES.get(node.op_type)) is not None and (why := rule(self, node)) is not None:
            raise FixedError(f"{_label(node)} {why}", result.name or "")


def _inferred(scope: Scope, sizes: Mapping[tuple[str, int], int], followed: Mapping[str, str]) -> dict[str, Dims]:
    proto = skeleton(scope.facts.model)
    graph = proto.graph
    for value in graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            length = sizes.get((value.name, axis), dim.dim_value or OTHERS)
            dim.dim_value = length
    nodes = list(graph.node)
    del graph.node[:]
    for node, made in zip(scope.graph, nodes):
        graph.node.extend([made] if node.domain != DOMAIN else _stock(node, made, scope, followed, graph))
    try:
        result = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True).graph
    except Exception as error:  # InferenceError, and what its C++ lets through
        text = " ".join(str(error).split())
        raise FixedError(f"shapes do not go together at another size: {text[:300]}", "") from None
    known = {}
    for value in (*result.input, *result.value_info, *result.output):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            known[value.name] = tuple(dim.dim_value for dim in dims)
    return known


def _stock(node: ir.Node, made: onnx.NodeProto, scope: Scope, followed: Mapping[str, str],
           graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Nodes whose shapes inference can tell in place of one of ours."""
    output, helper = made.output[0], onnx.helper
    if node.op_type in ("Rot90", "CustomRotScale"):
        turns = node.attributes.get_int("k" if node.op_type == "Rot90" else "rotations", 1)
        perm = node.attributes.get_ints("perm")
        if turns % 2:
            return [helper.make_node("Transpose", made.input, [output], perm=perm)]
        return [helper.make_node("Identity", made.input, [output])]
    if output in followed and node.op_type == "AffineGridSample":
        return [helper.make_node("Identity", made.input[:1], [output])]
    shape = scope.measured_shape(node.outputs[0])
    if output in followed and shape is not None:
        names = [f"{output} {part}" for part in ("image", "from", "to", "spatial", "batch", "axes", "whole")]
        image, begin, end, spatial, batch, axes, whole = names
        for name, value in ((begin, 2), (end, len(shape)), (batch, _known(shape[0])), (axes, shape[-1])):
            graph.initializer.append(helper.make_tensor(name, onnx.TensorProto.INT64, [1], [value]))
        zero = helper.make_tensor("", int(scope.dtype(node.outputs[0])), [1], [0])
        return [helper.make_node("Shape", [followed[output]], [image]),
                helper.make_node("Slice", [image, begin, end], [spatial]),
                helper.make_node("Concat", [batch, spatial, axes], [whole], axis=0),
                helper.make_node("ConstantOfShape", [whole], [output], value=zero)]
    if shape is not None and size_of(node.inputs[-1]) is not None:
        graph.input.append(helper.make_tensor_value_info(
            output, int(scope.dtype(node.outputs[0])), [_known(dim) for dim in shape]))
    return []


def _known(dim: int | str) -> int:
    return dim if isinstance(dim, int) else OTHERS


def _label(node: ir.Node) -> str:
    return f"{node.name or node.outputs[0].name} ({node.op_type})"


# What speaks against it although shapes go together: the end of a sentence about the node, or None.

def _reshape(shapes: MovedShapes, node: ir.Node) -> str | None:
    """Before and behind the axes that move, the target must have whole axes of the operand, and -1 in their place."""
    target = constant_integers(node.inputs[1])
    if target is None:
        return None
    given, moving = shapes.dims(node.inputs[0])[0], shapes.moving_axes(node.inputs[0])
    zero_copies = not node.attributes.get_int("allowzero", 0)
    kept = [zero_copies and n == 0 for n in target]
    if -1 not in target:
        return None if all(axis < len(kept) and kept[axis] for axis in moving) else f"has the fixed shape {target}"
    place = target.index(-1)
    before, behind = target[:place], target[place + 1:]
    prefixes = [math.prod(given[:k]) for k in range(len(given) + 1)]
    front = math.prod(given[axis] if kept[axis] else n for axis, n in enumerate(before))
    back = math.prod(given[axis] if kept[axis] else n for axis, n in enumerate(behind, place + 1))
    own = [axis for axis in moving if not (axis < len(kept) and kept[axis])]
    if not own:
        return None
    fits = any(prefixes[k] == front for k in range(own[0] + 1)) and any(
        math.prod(given[k:]) == back for k in range(own[-1] + 1, len(given) + 1))
    return None if fits else f"has the shape {target}, which may hold the size"


def _slice(shapes: MovedShapes, node: ir.Node) -> str | None:
    given = [constant_integers(value) for value in node.inputs[1:]]
    starts, ends = given[:2]
    if starts is None or ends is None or (len(node.inputs) > 3 and node.inputs[3] is not None and given[2] is None):
        return None
    axes = given[2] if len(given) > 2 and given[2] is not None else range(len(starts))
    rank, moving = len(shapes.dims(node.inputs[0])[0]), shapes.moving_axes(node.inputs[0])
    for start, end, axis in zip(starts, ends, axes):
        if axis % rank in moving and not all(-1 <= n <= 1 or abs(n) > FAR for n in (start, end)):
            return f"cuts [{start}:{end}] from an axis whose size is open"
    return None


def _along(name: str, default: int, why: str) -> Callable[[MovedShapes, ir.Node], str | None]:
    """Against constant numbers for one axis that moves."""
    def rule(shapes: MovedShapes, node: ir.Node) -> str | None:
        axis = node.attributes.get_int(name, default) % max(len(shapes.dims(node.inputs[0])[0]), 1)
        return why if axis in shapes.moving_axes(node.inputs[0]) else None
    return rule


def _resize(shapes: MovedShapes, node: ir.Node) -> str | None:
    moving = [shapes.moving_axes(value) for value in (node.inputs[0], node.outputs[0])]
    return None if moving[0] == moving[1] else "makes a fixed size of an axis whose size is open"


def _normalized(shapes: MovedShapes, node: ir.Node) -> str | None:
    axis = node.attributes.get_int("axis", -1) % len(shapes.dims(node.inputs[0])[0])
    return "has weights for an axis whose size is open" if shapes.moving_axes(node.inputs[0])[-1] >= axis else None


def _window(shapes: MovedShapes, node: ir.Node) -> str | None:
    given, kernel = shapes.dims(node.inputs[0])[0], node.attributes.get_ints("kernel_shape", ())
    for axis, length in enumerate(kernel, 2):
        if axis not in shapes.moving_axes(node.inputs[0]):
            continue
        if length >= given[axis] > 1:
            return f"has a window of {list(kernel)}, as large as the image"
        if node.op_type.endswith("Pool") and _tiles(node, axis, given[axis]):
            return f"has windows of {list(kernel)} that cut the image into few equal parts, as adaptive pooling does"
    return None


def _tiles(node: ir.Node, axis: int, length: int) -> bool:
    """Whether windows cut an axis into few equal parts: so adaptive pooling is exported, for the size that it sees."""
    kernel = node.attributes.get_ints("kernel_shape", ())[axis - 2]
    strides, pads = (node.attributes.get_ints(name, ()) for name in ("strides", "pads"))
    return (LEAST_TILE <= kernel < length <= MOST_TILES * kernel and length % kernel == 0
            and strides[axis - 2:axis - 1] == (kernel,) and not any(pads))


def _pad(shapes: MovedShapes, node: ir.Node) -> str | None:
    pads = constant_integers(node.inputs[1]) if len(node.inputs) > 1 else node.attributes.get_ints("pads", ())
    rank, moving = len(shapes.dims(node.inputs[0])[0]), shapes.moving_axes(node.inputs[0])
    axes = constant_integers(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else range(rank)
    if pads is None or axes is None:
        return None
    for axis, begin, end in zip(axes, pads, pads[len(pads) // 2:]):
        if axis % rank in moving and begin != end:
            return f"pads an axis by {begin} and {end}, which may make up a size"
    return None


def _grid_sample(shapes: MovedShapes, node: ir.Node) -> str | None:
    return "samples at a grid of fixed size" if not shapes.moves(node.inputs[1]) else None


def _always(why: str) -> Callable[[MovedShapes, ir.Node], str | None]:
    return lambda shapes, node: why


RULES: dict[str, Callable[[MovedShapes, ir.Node], str | None]] = {
    "Reshape": _reshape, "Slice": _slice, "GridSample": _grid_sample, "Pad": _pad,
    "Gather": _along("axis", 0, "takes fixed places of an axis whose size is open"),
    "Split": _along("axis", 0, "splits an axis whose size is open"),
    "Resize": _resize, "Upsample": _resize, "LayerNormalization": _normalized,
} | dict.fromkeys(POOLS, _window) | dict.fromkeys(INDEXED, _always("has indices that may be made for the size"))
