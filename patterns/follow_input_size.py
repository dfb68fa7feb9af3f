"""A fused node of constant size takes the size of its image, and the model's inputs get open height and width.

What it finds
    AffineGrid and AffineGridSample with a constant size that is the size of the image they sample, in a model exported
    with fixed height and width: torch's exporter refuses dynamic ones through affine_grid. Opt-in, since a model that
    means its size to be fixed looks the same.
Why
    One file serves every size of image that the PyTorch model takes.
Before -> after
    AffineGridSample(x, theta, [1, 3, 512, 512]), x [1, 3, 512, 512]
        ->  AffineGridSample(x, theta, Shape(x)), x [1, 3, height, width]
When it declines
    Whatever else depends on the size: shapes of the whole model are inferred at several sizes, and must go together;
    numbers that may be sizes (in Reshape, Slice, Gather, Split, Resize, uneven Pads, windows as large as the image or
    cutting it into a few equal parts, factors that read like a size, its root, logarithm or inverse, a theta that
    fusing had to adjust) are taken to be ones. Operators of other domains, nodes with bodies. What it cannot see is a
    size that went into a learned or computed constant under another figure: compare with the PyTorch model at another
    size.
Opsets and runtimes
    As the fused node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from patterns.moved_shapes import FixedError, MovedShapes
from patterns.operators.affine_grid import AFFINE_GRID
from patterns.operators.affine_grid_sample import AFFINE_GRID_SAMPLE
from patterns.operators.uses import size_of
from rewriter.builder import Builder
from rewriter.graphs import graph_inputs
from rewriter.scopes import Scope
from rewriter.vocabulary import DOMAIN, PATTERN_KEY, Match, Miss

AXES = {2: ("height", "width"), 3: ("depth", "height", "width")}
FACTORS = {2: ((1, 1), (2, 1), (1, 3), (3, 2)), 3: ((1, 1, 1), (2, 1, 1), (1, 3, 1), (1, 1, 2), (3, 2, 4))}
COMPUTING = ("Add", "Sub", "Mul", "Div", "MatMul", "Gemm", "Pow", "Mod", "Min", "Max", "Clip")
MOST_NUMBERS = 48  # elements of a constant that is looked at for sizes
HARMLESS = (0.0, 0.5, 1.0, 2.0)


class FollowInputSizePattern:
    name = "follow_input_size"
    anchors = frozenset({f"{DOMAIN}::AffineGrid", f"{DOMAIN}::AffineGridSample"})
    operators = (AFFINE_GRID, AFFINE_GRID_SAMPLE)
    needs = ()

    def match(self, node: ir.Node, scope: Scope) -> Match | Miss | None:
        size = size_of(node.inputs[-1])
        if size is None:
            return None
        if scope.path != "graph":
            return Miss("only nodes of the main graph follow an image", node.outputs[0].name or "")
        image = _image(node)
        if image is None:
            return Miss("what it makes does not only go to a sampler", node.outputs[0].name or "")
        dims = scope.measured_shape(image)
        if dims is None or tuple(dims[2:]) != size[2:]:
            own = "x".join(map(str, dims[2:])) if dims else "unknown"
            return Miss(f"its size {'x'.join(map(str, size[2:]))} is not its image's, {own}", image.name or "")
        plan = scope.memo("sizes to follow", lambda: _plan(scope))
        if isinstance(plan, Miss):
            return plan
        return Match(node.outputs[0], lambda builder: _build(builder, node, image, plan), [node], None,
                     f"{node.op_type} follows the size of {image.name}", plan)


def _build(builder: Builder, node: ir.Node, image: ir.Value,
           plan: dict[ir.Value, ir.Shape]) -> ir.Value:
    result = node.outputs[0]
    size = builder.op("Shape", [image], dtype=ir.DataType.INT64, shape=[len(image.shape or result.shape)])
    return builder.custom(node.op_type, [*node.inputs[:-1], size], dtype=builder.dtype(result),
                          shape=plan.get(result), **node.attributes)


def _image(node: ir.Node) -> ir.Value | None:
    """What is sampled: an operand, or that of the one sampler that the grid goes to."""
    if node.op_type == AFFINE_GRID_SAMPLE.name:
        return node.inputs[0]
    value = node.outputs[0]
    while len(uses := value.uses()) == 1 and not value.is_graph_output():
        user, index = uses[0]
        if user.graph is not node.graph:
            return None  # its image may be one of a body's own
        if (user.domain, user.op_type, index) == ("", "GridSample", 1):
            return user.inputs[0]
        if user.domain != "" or user.op_type not in ("Cast", "Identity"):
            return None
        value = user.outputs[0]
    return None


def _plan(scope: Scope) -> dict[ir.Value, ir.Shape] | Miss:
    """The shapes that values have once all nodes follow: at once, since one that stayed would keep the others."""
    images = {}
    for node in scope.graph:
        size = size_of(node.inputs[-1]) if _is_ours(node) else None
        image = _image(node) if size is not None else None
        dims = scope.measured_shape(image) if image is not None else None
        if dims is not None and tuple(dims[2:]) == size[2:]:
            images[node] = image
    try:
        for node in images:
            _check_numbers(node, scope)
        first = _opened(graph_inputs(images.values()), images, scope)
        every = _opened(scope.facts.model.graph.inputs, images, scope)
        if not first:
            raise FixedError("its image comes from no input of fixed height and width", "")
        try:
            return _tried(first, images, scope)
        except FixedError:  # another input may have to change along
            if every == first:
                raise
            return _tried(every, images, scope)
    except FixedError as fixed:
        return Miss(f"the size cannot become open: {fixed}", fixed.tensor)


def _is_ours(node: ir.Node) -> bool:
    return node.domain == DOMAIN and node.op_type in (AFFINE_GRID.name, AFFINE_GRID_SAMPLE.name)


def _opened(values: Iterable[ir.Value], images: dict[ir.Node, ir.Value], scope: Scope) -> dict[tuple[str, int], str]:
    """(input, axis) -> symbol, for the spatial axes of inputs that may be images; equal lengths share a symbol."""
    ranks = {len(scope.measured_shape(image)) for image in images.values()}
    inputs = [v for v in scope.facts.model.graph.inputs if v in set(values) and v.const_value is None]
    taken, symbols, found = set(scope.facts.shapes.anchors), {}, {}
    for value in inputs:
        dims = scope.shape(value)
        if dims is None or len(dims) not in ranks or not all(isinstance(n, int) for n in dims[2:]):
            continue
        for axis, length in enumerate(dims[2:], 2):
            if (axis, length) not in symbols:
                wish = name = AXES[len(dims) - 2][axis - 2]
                number = 0
                while name in taken:
                    number += 1
                    name = f"{wish}_{number}"
                taken.add(name)
                symbols[axis, length] = name
            found[value.name, axis] = symbols[axis, length]
    return found


def _tried(opened: dict[tuple[str, int], str], images: dict[ir.Node, ir.Value],
           scope: Scope) -> dict[ir.Value, ir.Shape]:
    """The plan, if the model allows it.

    Raises:
        FixedError: it does not.
    """
    lengths = {(value.name, axis): n for value in scope.facts.model.graph.inputs
               for axis, n in enumerate(scope.shape(value) or ())}
    rank = max(axis for _, axis in opened) - 1
    sizes = [{key: lengths[key] * factors[key[1] - 2] for key in opened} for factors in FACTORS[rank]]
    names = {node.outputs[0].name: image.name for node, image in images.items()}
    moved = MovedShapes(scope, sizes, names)
    symbols = {tuple(trial[key] for trial in sizes): symbol for key, symbol in opened.items()}
    shapes = {}
    values = (*scope.facts.model.graph.inputs, *(value for node in scope.graph for value in node.outputs))
    for value in values:
        if moved.moves(value) and value.shape is not None:
            axes = enumerate(zip(*moved.dims(value)))
            shapes[value] = ir.Shape([value.shape[axis] if len(set(seen)) == 1 else symbols.get(seen)
                                      for axis, seen in axes])
    return shapes


def _check_numbers(node: ir.Node, scope: Scope) -> None:
    """Numbers that were computed from the size, or may have been: on the way to theta more of them than elsewhere.

    Raises:
        FixedError: there is one.
    """
    lengths = [float(n) for n in size_of(node.inputs[-1])[2:] if n > 2]
    whole = [*lengths, math.prod(lengths)]
    made = [*whole, *_fractional(f(n) for n in whole for f in (math.sqrt, math.log, math.log2, math.log10))]
    if lengths:  # of an unbiased variance
        made += [whole[-1] - 1, whole[-1] / (whole[-1] - 1)]
    anywhere = _without_harmless([*made, *(1 / n for n in made)])
    pixels = _without_harmless([figure for n in lengths for figure in (
        n - 1, n / 2, (n - 1) / 2, 1 / (n - 1), 2 / n, 2 / (n - 1), (n - 1) / n, n / (n - 1))])
    makers = _makers(node.inputs[-2])
    for other in scope.graph:
        if other.op_type not in COMPUTING or other.domain != "":
            continue
        makes_theta = other in makers and len(scope.measured_shape(other.outputs[0]) or ()) <= 3
        for number in _numbers(other, scope):
            where = other.outputs[0].name or ""
            if makes_theta and other.metadata_props.get(PATTERN_KEY) == "affine_grid":
                raise FixedError("theta is adjusted by numbers that were computed for this size", where)
            figures = np.concatenate([anywhere, pixels]) if makes_theta else anywhere
            if np.isclose(abs(number), figures, rtol=1e-6, atol=0).any():
                raise FixedError(f"{other.name or where} ({other.op_type}) computes with {number:g}, which may have "
                                 "been made of the size", where)


def _fractional(figures: Iterable[float]) -> list[float]:
    """Those that are not whole: too much else is 4 or 8."""
    return [figure for figure in figures if not figure.is_integer()]


def _without_harmless(figures: list[float]) -> np.ndarray:
    array = np.array(figures)
    return array[~np.isin(array, HARMLESS)]


def _makers(value: ir.Value | None) -> set[ir.Node]:
    """All nodes that a value is computed by."""
    stack, found = [value], set()
    while stack:
        value = stack.pop()
        maker = value.producer() if value is not None else None
        if maker is not None and maker not in found:
            found.add(maker)
            stack.extend(maker.inputs)
    return found


def _numbers(node: ir.Node, scope: Scope) -> list[float]:
    """The elements of small constant operands."""
    found = []
    for operand in node.inputs:
        dims = scope.shape(operand) if operand is not None else None
        if dims is None or not all(isinstance(n, int) for n in dims) or math.prod(dims) > MOST_NUMBERS:
            continue
        array = scope.constant(operand)
        if array is not None and array.dtype.kind == "f":
            found += array.ravel().tolist()
    return found
