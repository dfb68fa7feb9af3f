"""An affine grid that only feeds a sampler becomes, with it, one `custom.ops::AffineGridSample`.

What it finds
    GridSample whose grid is a `custom.ops::AffineGrid` (casts between float types in between), read by nothing else.
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

import onnx_ir as ir

from patterns.operators.affine_grid_sample import AFFINE_GRID_SAMPLE
from rewriter.builder import Builder
from rewriter.scopes import Scope
from rewriter.vocabulary import DOMAIN, Match, Miss

HALVES = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
SPELLING = {"linear": "bilinear", "cubic": "bicubic"}  # until opset 19


class AffineGridSamplePattern:
    name = "affine_grid_sample"
    anchors = frozenset({"GridSample"})
    operators = (AFFINE_GRID_SAMPLE,)
    needs = ("affine_grid",)

    def match(self, node: ir.Node, scope: Scope) -> Match | Miss | None:
        covers = [node]
        grid = node.inputs[1]
        while (maker := _maker(grid)) is not None and maker.domain == "" and maker.op_type in ("Cast", "Identity"):
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
        widened = given if given == dtype or given not in HALVES else ir.DataType.FLOAT
        if widened not in (dtype, ir.DataType.FLOAT):
            return Miss(f"theta is {given}, the image {dtype}", theta.name or "")
        mode = _text(node, "mode", "linear")
        attributes = {
            "mode": SPELLING.get(mode, mode) if scope.opset < 20 else {v: k for k, v in SPELLING.items()}.get(mode, mode),
            "padding_mode": _text(node, "padding_mode", "zeros"),
            "align_corners": _integer(node, "align_corners"),
            "grid_align_corners": _integer(maker, "align_corners"),
        }

        def build(builder: Builder) -> ir.Value:
            coefficients = theta
            if widened != given:
                coefficients = builder.op("Cast", [theta], dtype=widened, to=int(widened))
            return builder.custom("AffineGridSample", [image, coefficients, maker.inputs[1]], dtype=dtype,
                                  shape=scope.declared_shape(node.outputs[0]), **attributes)

        return Match(node.outputs[0], build, covers, AFFINE_GRID_SAMPLE.name, f"sampler of {image.name}")


def _maker(value: ir.Value | None) -> ir.Node | None:
    return value.producer() if value is not None else None


def _text(node: ir.Node, name: str, default: str) -> str:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_string()


def _integer(node: ir.Node, name: str) -> int:
    attribute = node.attributes.get(name)
    return 0 if attribute is None else attribute.as_int()
