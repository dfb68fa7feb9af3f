"""Which sizes to try: enough assignments to the symbols in shapes that size arithmetic cannot hide from them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from rewriter.evaluator import EvaluationError, Evaluator, Kind, entry, is_size_input, kind, size_symbols
from rewriter.graphs import bodies

if TYPE_CHECKING:
    from rewriter.scopes import Scope

# Assigned to the non-batch symbols, four at a time: odd, even, square, thin both ways.
SPATIAL = ((7, 9, 5, 6), (16, 12, 10, 14), (8, 8, 8, 8), (3, 131, 5, 67), (131, 3, 67, 5), (33, 20, 4, 9))
# Arithmetic on sizes that the tried ones cannot miss: sums, products, quotients and comparisons with constants (both
# sides of each are tried, where sizes up to LARGEST_SIZE get there), and whatever moves elements. With anything else
# (a power, a sine) a base grid could agree with the ideal one at these sizes only.
SUFFICIENT = frozenset({
    "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Concat", "Constant", "ConstantOfShape", "CumSum", "Div",
    "Einsum", "Equal", "Expand", "EyeLike", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater",
    "GreaterOrEqual", "Identity", "If", "Less", "LessOrEqual", "MatMul", "Max", "Mean", "Min", "Mul", "Neg", "NonZero",
    "Not", "OneHot", "Or", "Pad", "Range", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "Reshape", "ScatterElements", "ScatterND", "Shape", "Size", "Slice", "Split", "Squeeze", "Sub", "Sum",
    "Tile", "Transpose", "Unsqueeze", "Where", "Xor"})
COMPARING = frozenset({"Div", "Mod", "Min", "Max", "Clip", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
LARGEST_SIZE = 4096  # up to which sizes are looked for at which a comparison turns
LARGEST_BATCH = 64
MOST_TURNS = 6  # below, at, above; more for what is not monotonic


def symbols(scope: Scope, values: Iterable[ir.Value]) -> tuple[dict[str, bool], list[tuple[ir.Value, float]]]:
    """The symbols that values depend on (each with: is it a batch size), and the constants sizes are compared with."""
    found: dict[str, bool] = {}
    comparisons: dict[tuple[ir.Value, float], None] = {}
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
            if kind(source, scope) is Kind.STRUCTURAL or not scope.anchored(source):
                stack.append(source)
        elif entry(node) is not None or node.op_type == "If":
            if node.op_type in COMPARING:
                comparisons.update(dict.fromkeys(_comparisons(scope, node)))
            stack.extend(v for v in node.inputs if v is not None)
            stack.extend(v for body in bodies(node) for v in body.outputs)
        else:
            note(scope.shape(value))
    return found, list(comparisons)


def beyond_trial(scope: Scope, values: Iterable[ir.Value]) -> ir.Node | None:
    """A node among those that values follow from whose arithmetic on sizes no set of sizes can prove."""
    stack, seen = list(values), set()
    while stack:
        value = stack.pop()
        node = value.producer()
        if value in seen or node is None or kind(value, scope) is not Kind.STRUCTURAL:
            continue
        seen.add(value)
        if node.op_type not in SUFFICIENT or _turns_too_late(scope, node):
            return node
        if node.op_type not in ("Shape", "Size"):
            stack.extend(v for v in node.inputs if v is not None)
            stack.extend(v for body in bodies(node) for v in body.outputs)
    return None


def _turns_too_late(scope: Scope, node: ir.Node) -> bool:
    """Whether it compares sizes with a constant beyond the tried ones; a sentinel that no size reaches is none."""
    return node.op_type in COMPARING and any(LARGEST_SIZE < c < 2**31 - 1 for _, c in _comparisons(scope, node))


def _comparisons(scope: Scope, node: ir.Node) -> list[tuple[ir.Value, float]]:
    """(a value made of sizes, a constant it is compared with)"""
    operands = [v for v in node.inputs if v is not None]
    sizes = [v for v in operands if kind(v, scope) is Kind.STRUCTURAL]
    if node.op_type == "Div" and (dtype := scope.dtype(node.outputs[0])) is not None and dtype.is_floating_point():
        return []  # it does not round
    constants = [a for a in map(scope.constant, operands) if a is not None and a.size <= 8 and a.dtype.kind in "iuf"]
    return [(v, float(a)) for v in sizes for array in constants for a in np.ravel(array) if np.isfinite(a) and a > 1]


def trials(scope: Scope, values: Iterable[ir.Value], batches: tuple[int, ...] = (2, 3)) -> list[Evaluator]:
    """An evaluator for each assignment of sizes to try; a single one where `values` depend on no symbol."""
    found, comparisons = symbols(scope, values)
    if not found:
        return [Evaluator(scope, {})]
    spatial = [name for name, is_batch in found.items() if not is_batch]
    batch = itertools.cycle(batches)
    sets = [_assign(found, spatial, row, next(batch)) for row in range(len(SPATIAL) if spatial else len(batches))]
    edges: dict[tuple[str, int], None] = {}
    for compared, constant in comparisons:
        concerns, _ = symbols(scope, [compared])
        for name in sorted(concerns.keys() & found.keys()):
            most = LARGEST_BATCH if found[name] else LARGEST_SIZE
            for turn in _turns(scope, compared, constant, name, sets[0], most):
                edges |= dict.fromkeys((name, size) for size in (turn - 1, turn, turn + 1) if size > 1)
    sets += [_assign(found, spatial, 0, next(batch)) | {name: size} for name, size in edges]
    return [Evaluator(scope, sizes) for sizes in sets]


def _assign(found: Iterable[str], spatial: list[str], row: int, batch: int) -> dict[str, int]:
    """Sizes of all symbols; no two spatial ones agree in every row, and none stays the same."""
    sizes = dict.fromkeys(found, batch)
    for k, name in enumerate(spatial):
        turn, column = divmod(k, len(SPATIAL[0]))
        sizes[name] = SPATIAL[(row + turn) % len(SPATIAL)][column] + 2 * turn
    return sizes


def _turns(scope: Scope, compared: ir.Value, constant: float, name: str, sizes: dict[str, int], most: int) -> list[int]:
    """The sizes of one symbol from which on a value compares otherwise with a constant than for smaller ones."""

    def side(size: int):
        difference = Evaluator(scope, sizes | {name: size}).value(compared).astype(np.float64) - constant
        return np.any(difference < 0), np.any(difference == 0), np.any(difference > 0)

    turns: list[int] = []
    try:
        low, before = 2, side(2)
        while low < most and len(turns) < MOST_TURNS:
            high = min(2 * low, most)
            if side(high) == before:
                low = high
                continue
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if side(middle) == before else (low, middle)
            turns.append(high)
            low, before = high, side(high)
    except EvaluationError:
        pass  # sizes with which the graph does not run
    return turns
