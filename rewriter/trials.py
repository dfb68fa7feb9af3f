"""Which sizes to try: enough assignments to the symbols in shapes that size arithmetic cannot hide from them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from rewriter.evaluator import Evaluator, Kind, entry, is_size_input, kind, size_symbols
from rewriter.graphs import bodies

if TYPE_CHECKING:
    from rewriter.scopes import Scope

# Assigned to the non-batch symbols in turn: odd, even, square, thin both ways.
SPATIAL = ((7, 9, 5, 6), (16, 12, 10, 14), (8, 8, 8, 8), (3, 131, 5, 67), (131, 3, 67, 5), (33, 20, 4, 9))
# Arithmetic on sizes that the tried ones cannot miss: sums, products, quotients and comparisons with constants (both
# sides of each are tried), and whatever moves elements. With anything else (a power, a sine) a base grid could agree
# with the ideal one at these sizes only.
SUFFICIENT = frozenset({
    "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Concat", "Constant", "ConstantOfShape", "CumSum", "Div", "Einsum",
    "Equal", "Expand", "EyeLike", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater",
    "GreaterOrEqual", "Identity", "If", "Less", "LessOrEqual", "MatMul", "Max", "Mean", "Min", "Mul", "Neg", "NonZero",
    "Not", "OneHot", "Or", "Pad", "Range", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "Reshape", "ScatterElements", "ScatterND", "Shape", "Size", "Slice", "Split", "Squeeze", "Sub", "Sum",
    "Tile", "Transpose", "Unsqueeze", "Where", "Xor"})
COMPARING = frozenset({"Div", "Min", "Max", "Clip", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Mod"})
HIGHEST_THRESHOLD = 2048


def symbols(scope: Scope, values: Iterable[ir.Value]) -> tuple[dict[str, bool], set[int]]:
    """The symbols that values depend on (each with: is it a batch size), and the thresholds sizes are compared with."""
    found: dict[str, bool] = {}
    thresholds: set[int] = set()
    stack, seen = list(values), set()

    def note(dims):
        for axis, dim in enumerate(dims or ()):
            if isinstance(dim, str):
                found[dim] = found.get(dim, False) or axis == 0

    while stack:
        value = stack.pop()
        if value in seen or kind(value, scope) is Kind.CONSTANT:
            continue
        seen.add(value)
        if is_size_input(value, scope):
            names = size_symbols(value, scope)
            found.update((name, len(names) >= 4 and k == 0) for k, name in enumerate(names))
            continue
        node = value.producer()
        if node is None:
            note(scope.shape(value))
        elif node.op_type in ("Shape", "Size"):
            source = node.inputs[0]
            if kind(source, scope) is Kind.DATA:
                note(scope.shape(source))
            if not scope.anchored(source):
                stack.append(source)
        elif entry(node) is not None or node.op_type == "If":
            if node.op_type in COMPARING:
                thresholds.update(_small_integers(scope, node))
            stack.extend(v for v in node.inputs if v is not None)
            stack.extend(v for body in bodies(node) for v in body.outputs)
        else:
            note(scope.shape(value))
    return found, thresholds


def beyond_trial(scope: Scope, values: Iterable[ir.Value]) -> ir.Node | None:
    """A node among those that values follow from whose arithmetic on sizes no set of sizes can prove."""
    stack, seen = list(values), set()
    while stack:
        value = stack.pop()
        node = value.producer()
        if value in seen or node is None or kind(value, scope) is not Kind.STRUCTURAL:
            continue
        seen.add(value)
        if node.op_type not in SUFFICIENT:
            return node
        if node.op_type not in ("Shape", "Size"):
            stack.extend(v for v in node.inputs if v is not None)
            stack.extend(v for body in bodies(node) for v in body.outputs)
    return None


def _small_integers(scope: Scope, node: ir.Node) -> set[int]:
    integers = set()
    for value in node.inputs:
        array = scope.constant(value)
        if array is not None and array.size <= 8:
            integers.update(int(a) for a in np.ravel(array) if np.isfinite(a) and 1 < a <= HIGHEST_THRESHOLD)
    return integers


def trials(scope: Scope, values: Iterable[ir.Value], batches: tuple[int, ...] = (2, 3)) -> list[Evaluator]:
    """An evaluator for each assignment of sizes to try; a single one where `values` depend on no symbol."""
    found, thresholds = symbols(scope, values)
    if not found:
        return [Evaluator(scope, {})]
    spatial = [name for name, is_batch in found.items() if not is_batch]
    batch = itertools.cycle(batches)
    sets = []
    rows = list(SPATIAL if spatial else SPATIAL[: len(batches)])
    for threshold in sorted(thresholds if spatial else ()):
        for size in (threshold - 1, threshold, threshold + 1):
            rows += [(size, 9, 5, 6), (7, size, 5, 6)] if size > 1 else []
    for row in rows:
        sizes = dict.fromkeys(found, next(batch))
        sizes.update(zip(spatial, itertools.chain(row, itertools.count(11, 2)), strict=False))
        sets.append(sizes)
    return [Evaluator(scope, sizes) for sizes in sets]
