"""An affine grid, however it is written, becomes one `custom.ops::AffineGrid`.

What it finds
    Any value [N, H, W, 2] or [N, D, H, W, 3] that is an affine grid of at most 16 parameters a sample: the
    decompositions of torch.nn.functional.affine_grid, hand-written base grids (linspace, arange, meshgrid, buffers)
    multiplied by theta with MatMul, Einsum, Gemm or broadcast sums, and ai.onnx's own AffineGrid. Recognised by what
    it computes (see `affine_slice`), never by its spelling.
Why
    The decomposition carries a base grid of up to 25 MB (1080p) and spends 10 to 100 times what the grid costs.
Before -> after
    theta, base [1, H*W, 3]: Transpose, MatMul, Reshape  ->  AffineGrid(theta, [1, 1, H, W])
    where the parameters are not theta itself, a small matrix (for pixel units: of the size) turns them into it first.
When it declines
    A perspective division, a flow field, a clamp or any other non-linear step; a base grid off by more than a few
    ulp of its dtype; a base that differs from sample to sample; parameters that are not few; grids under 4 pixels.
Opsets and runtimes
    Opset 11 and newer; any runtime with model-local functions, or the kernels.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from patterns.adjusted_theta import cast, emit_theta
from patterns.affine_slice import Proof, may_be_parameters, prove
from patterns.grid_hints import plausible
from patterns.operators.affine_grid import AFFINE_GRID
from patterns.sizes import Size, wire
from rewriter.builder import Builder
from rewriter.evaluator import Kind, kind
from rewriter.graphs import survivors
from rewriter.scopes import Scope
from rewriter.slices import FLOATS, LinearSlice, linear_slice, unavoidable_leaf
from rewriter.vocabulary import Match, Miss

# Operators that can be the last one of a grid: everything linear that makes or reorders a tensor.
ENDINGS = frozenset({
    "Add", "AffineGrid", "Cast", "Concat", "Div", "Einsum", "Expand", "Gather", "Identity", "MatMul", "Mul", "Reshape",
    "ReduceSum", "ScatterElements", "ScatterND", "Slice", "Squeeze", "Sub", "Sum", "Transpose", "Unsqueeze", "If"})


class AffineGridPattern:
    name = "affine_grid"
    anchors = ENDINGS | {"GridSample"}
    operators = (AFFINE_GRID,)
    needs = ()

    def match(self, node: ir.Node, scope: Scope) -> Match | Miss | None:
        sampled = node.op_type == "GridSample"
        root = node.inputs[1] if sampled else node.outputs[0]
        if root is None or root.producer() is None or root.producer().graph is not scope.graph:
            return None
        hopeless = scope.memo("hopeless grids", set)
        if root in hopeless and not sampled:
            return None
        if not sampled and root not in scope.memo("plausible grids", lambda: plausible(scope.graph)):
            return None
        dtype = scope.dtype(root)
        if dtype not in FLOATS and not (sampled and dtype is None):  # behind a node of ours inference may not know it
            return None
        shape = scope.measured_shape(root)
        rank = _grid_rank(node.inputs[0], scope) if sampled else None
        if rank is None:
            rank = len(shape) - 2 if shape is not None else None
        if rank not in (2, 3):
            return None
        if shape is not None and len(shape) != rank + 2:
            return None
        if shape is not None and shape[-1] != rank and not (sampled and isinstance(shape[-1], str)):
            return None
        if kind(root, scope) is not Kind.DATA:
            return None
        leaf = unavoidable_leaf(root, scope, lambda value: may_be_parameters(scope.shape(value)))
        if leaf is not None:
            return _too_many(*leaf, scope) if sampled else None
        if dtype is None:
            return Miss("the grid's dtype is unknown", root.name or "")
        piece = linear_slice(root, scope)
        proof = prove(piece, scope, rank) if piece.whole else None
        if proof is None:
            hopeless.update(piece.spine())
            reason = "the grid comes from several values, and no few of them make all of it"
            return Miss(reason, root.name or "") if sampled else None
        if not isinstance(proof, Proof):
            return proof
        covers = dict.fromkeys(piece.between(set(proof.theta.values)))
        staying = [value for value in piece.order if value.producer() not in covers]
        size = wire(proof, root, piece.structural, staying, scope, covers)
        if isinstance(size, Miss):
            return size
        needed = _still_computed(root, covers, piece, proof)
        if needed is not None:
            return Miss("a value as large as the grid is needed elsewhere too: fusing would add work and save none",
                        needed.name or "")
        note = f"affine grid of {', '.join(v.name or '' for v in proof.theta.values)}"
        note += "" if proof.theta.matrix is None else ", adjusted"
        return Match(root, lambda builder: _build(builder, proof, size, scope, root), covers, AFFINE_GRID.name, note)


def _too_many(leaf: ir.Value, why: str, scope: Scope) -> Miss:
    shape = ", ".join(map(str, scope.measured_shape(leaf) or "?"))
    return Miss(f"the grid comes from {leaf.name} [{shape}] ({why}): too many values to be the parameters of an affine "
                "grid", leaf.name or "")


def _still_computed(root: ir.Value, covers, piece: LinearSlice, proof: Proof) -> ir.Value | None:
    """A value of the grid's size on the way to it that stays: then fusing would add work, not save it."""
    elements = math.prod(proof.shapes[0])
    for node in survivors(root, covers):
        for value in node.outputs:
            if value in piece.feeds and math.prod(proof.trials[0].shape(value)) >= elements:
                return value
    return None


def _grid_rank(image: ir.Value | None, scope: Scope) -> int | None:
    """How many coordinates a sampler of this image needs, where the image's rank is known."""
    shape = scope.measured_shape(image) if image is not None else None
    return None if shape is None else len(shape) - 2


def _build(builder: Builder, proof: Proof, size: Size, scope: Scope, root: ir.Value) -> ir.Value:
    theta, wanted, extents = proof.theta.values[0], scope.dtype(root), size.emit(builder)
    if proof.theta.matrix is None:
        theta = _as_theta(builder, _uncast(theta, wanted, scope), proof.rank, scope)
    else:
        theta = emit_theta(builder, proof.theta, extents)
    if wanted.itemsize > builder.dtype(theta).itemsize:  # exact, and only theta is converted
        theta = cast(builder, theta, wanted)
    theta = size.expand(builder, theta)
    grid = builder.custom("AffineGrid", [theta, extents], dtype=builder.dtype(theta),
                          shape=scope.declared_shape(root), align_corners=int(proof.align_corners))
    return cast(builder, grid, wanted)


def _uncast(theta: ir.Value, wanted: ir.DataType, scope: Scope) -> ir.Value:
    """Skip a widening Cast of theta when the grid is narrowed again: the operator widens by itself."""
    node = theta.producer()
    if node is not None and node.op_type == "Cast" and scope.dtype(theta) != wanted == scope.dtype(node.inputs[0]):
        return node.inputs[0]
    return theta


def _as_theta(builder: Builder, value: ir.Value, rank: int, scope: Scope) -> ir.Value:
    """The value as [N, d, d+1]: a batch axis added, the last row of a homogeneous matrix dropped."""
    shape = scope.measured_shape(value)
    if shape[-2] == rank + 1:
        bounds = {"start": 0, "end": rank, "axis": len(shape) - 2}
        value = builder.op("Slice", [value, *(builder.constant(np.array([v]), k) for k, v in bounds.items())])
    return value if len(shape) == 3 else builder.reshape(value, [1, rank, rank + 1])
