"""An affine grid that only feeds a sampler becomes, with it, one `custom.ops::AffineGridSample`.

What it finds
    GridSample whose grid is a `custom.ops::AffineGrid` (casts between float types in between), read by nothing else;
    or whose grid is a constant, or follows from sizes alone, and fits an affine grid in every pixel.
Why
    The grid need not exist: a kernel computes coordinates on the fly, and the fallback folds the sampler's
    align_corners convention into theta, where it costs nothing.
Before -> after
    AffineGrid(theta, size), GridSample(x, grid)  ->  AffineGridSample(x, theta, size)
When it declines
    The grid has another consumer or is a graph output; theta is of another dtype than the image and not float32
    (halves are widened to it); sampler modes that the opset's GridSample does not have for the image's rank.
Opsets and runtimes
    Opset 16 and newer (where GridSample begins); any runtime with model-local functions, or the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from patterns.constant_grid import fit
from patterns.operators.affine_grid_sample import AFFINE_GRID_SAMPLE
from patterns.operators.uses import HALVES, integer_of, text_of
from patterns.sizes import wire
from rewriter.builder import Builder
from rewriter.evaluator import Kind, kind
from rewriter.scopes import Scope
from rewriter.slices import FLOATS
from rewriter.vocabulary import DOMAIN, Match, Miss

MODES_UNTIL_19 = {"linear": "bilinear", "cubic": "bicubic"}
MODES_SINCE_20 = {"bilinear": "linear", "bicubic": "cubic"}
SMALLEST_CONSTANT = 1024  # elements of a constant grid that is worth replacing


class AffineGridSamplePattern:
    name = "affine_grid_sample"
    anchors = frozenset({"GridSample"})
    operators = (AFFINE_GRID_SAMPLE,)
    needs = ("affine_grid",)

    def match(self, node: ir.Node, scope: Scope) -> Match | Miss | None:
        grid = node.inputs[1]
        if any(attribute.is_ref() for attribute in node.attributes.values()):
            return None  # a function's callers choose the mode
        if integer_of(node, "align_corners") not in (0, 1):
            return Miss("its align_corners is neither 0 nor 1", node.outputs[0].name or "")
        if kind(grid, scope) is not Kind.DATA:
            return self._constant_grid(node, grid, scope)
        covers = [node]
        while (maker := grid.producer()) is not None and maker.domain == "" and maker.op_type in ("Cast", "Identity"):
            covers.append(maker)
            grid = maker.inputs[0]
        if maker is None or (maker.domain, maker.op_type) != (DOMAIN, "AffineGrid"):
            return None
        covers.append(maker)
        for link in covers[1:]:
            if len(link.outputs[0].uses()) > 1 or link.outputs[0].is_graph_output():
                return Miss("the grid is needed elsewhere too, so it stays a tensor", link.outputs[0].name or "")
            if link.graph is not node.graph:
                return Miss("the grid is made in an outer graph", link.outputs[0].name or "")
        image, theta = node.inputs[0], maker.inputs[0]
        dtype, given = scope.dtype(image), scope.dtype(theta)
        if dtype is None or given is None:
            return Miss("the image's dtype is unknown", image.name or "")
        if dtype not in FLOATS:
            return Miss(f"the image is {dtype}, and the sampler is for floats", image.name or "")
        widened = given if given == dtype or given not in HALVES else ir.DataType.FLOAT
        if widened not in (dtype, ir.DataType.FLOAT):
            return Miss(f"theta is {given}, the image {dtype}", theta.name or "")

        def operands(builder: Builder) -> tuple[ir.Value, ir.Value]:
            if widened == given:
                return theta, maker.inputs[1]
            return builder.op("Cast", [theta], dtype=widened, to=int(widened)), maker.inputs[1]

        return _sample(node, scope, operands, integer_of(maker, "align_corners"), covers)

    def _constant_grid(self, node: ir.Node, grid: ir.Value, scope: Scope) -> Match | Miss | None:
        image, dtype = node.inputs[0], scope.dtype(node.inputs[0])
        shape, extent = scope.measured_shape(image), scope.measured_shape(grid)
        if shape is None or extent is None or dtype not in FLOATS or len(shape) not in (4, 5):
            return None
        if kind(grid, scope) is Kind.CONSTANT and (count := math.prod(extent)) < SMALLEST_CONSTANT:
            return Miss(f"a constant grid of {count} numbers: too few to be worth replacing", grid.name or "")
        found = fit(grid, scope, len(shape) - 2)
        if isinstance(found, Miss):
            return found
        size = wire(found, grid, [grid], [image], scope)
        if isinstance(size, Miss):
            return size
        precision = np.float64 if dtype == ir.DataType.DOUBLE else np.float32

        def operands(builder: Builder) -> tuple[ir.Value, ir.Value]:
            theta = builder.constant(found.theta.astype(precision), "theta")
            return size.expand(builder, theta), size.emit(builder)

        return _sample(node, scope, operands, int(found.align_corners), [node, *_makers(grid)])


def _makers(value: ir.Value) -> list[ir.Node]:
    return [value.producer()] if value.producer() is not None else []


def _sample(node: ir.Node, scope: Scope, operands: Callable[[Builder], tuple[ir.Value, ir.Value]],
            grid_align_corners: int, covers: list[ir.Node]) -> Match:
    """The sampler in place of GridSample, with theta and size as `operands` makes them."""
    image, mode = node.inputs[0], text_of(node, "mode", "linear")
    spelling = MODES_UNTIL_19 if scope.opset < 20 else MODES_SINCE_20
    attributes = {
        "mode": spelling.get(mode, mode),
        "padding_mode": text_of(node, "padding_mode", "zeros"),
        "align_corners": integer_of(node, "align_corners"),
        "grid_align_corners": grid_align_corners,
    }

    def build(builder: Builder) -> ir.Value:
        theta, size = operands(builder)
        return builder.custom("AffineGridSample", [image, theta, size], dtype=builder.dtype(image),
                              shape=scope.declared_shape(node.outputs[0]), **attributes)

    return Match(node.outputs[0], build, covers, AFFINE_GRID_SAMPLE.name, f"sampler of {image.name}")
