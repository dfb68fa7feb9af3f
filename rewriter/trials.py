"""Which sizes to try: enough assignments to the symbols in shapes that size arithmetic cannot hide from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from rewriter.evaluator import Evaluator, Kind, entry, is_size_input, kind, size_symbols
from rewriter.graphs import bodies
from rewriter.turns import (
    COMPARING,
    FEW,
    LARGEST_BATCH,
    LARGEST_SIZE,
    changed,
    cuts_a_length,
    depends,
    erratic,
    steps,
    straight,
    turns,
    turns_somewhere,
    wraps,
)

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
FLAGS = (0, 1, -1, -2)  # what an integer input may be beside an extent
MOST_COMBINATIONS = 100  # of sizes on either side of several turns
MOST_PIXELS = 1 << 21  # that all of these have together


def symbols(scope: Scope, values: Iterable[ir.Value]) -> tuple[dict[str, bool], list[ir.Node]]:
    """The symbols that values depend on (each with: is it a batch size), and the nodes at which sizes turn."""
    found: dict[str, bool] = {}
    turning: dict[ir.Node, None] = {}
    stack, seen = list(values), set()

    def note(dims):
        for axis, dim in enumerate(dims or ()):
            if isinstance(dim, str):
                found[dim] = found.get(dim, False) or (axis == 0 and len(dims) > 1)

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
            if kind(value, scope) is Kind.STRUCTURAL and turns_somewhere(scope, node):
                turning[node] = None
            stack.extend(v for v in node.inputs if v is not None)
            stack.extend(v for body in bodies(node) for v in body.outputs)
        else:
            note(scope.shape(value))
    return found, list(turning)


class Turns:
    """The sizes at which the arithmetic that some values follow from turns.

    Attributes:
        found, turning: as `symbols` gives them.
        sizes: the assignment from which one symbol at a time is varied.
    """

    def __init__(self, scope: Scope, found: dict[str, bool], turning: list[ir.Node]):
        self.scope, self.found, self.turning = scope, found, turning
        self.sizes = assign(found, [name for name, is_batch in found.items() if not is_batch], 0, 2)
        self._evaluators: dict[tuple[str, int], Evaluator] = {}

    def at(self, name: str) -> Callable[[int], Evaluator]:
        """The evaluator for a size of this symbol."""

        def evaluator(size: int) -> Evaluator:
            if (name, size) not in self._evaluators:
                self._evaluators[name, size] = Evaluator(self.scope, self.sizes | {name: size})
            return self._evaluators[name, size]

        return evaluator

    def most(self, name: str) -> int:
        return LARGEST_BATCH if self.found[name] else LARGEST_SIZE

    def concerned(self, node: ir.Node) -> list[str]:
        return sorted(symbols(self.scope, node.outputs[:1])[0].keys() & self.found.keys())

    def of(self, node: ir.Node) -> dict[str, list[int]]:
        """Symbol -> sizes at which the node turns."""
        every = {name: turns(self.scope, node, name, self.at(name), self.most(name)) for name in self.concerned(node)}
        return {name: sizes for name, sizes in every.items() if sizes}

    def erratic(self, node: ir.Node) -> bool:
        return any(erratic(self.scope, node, name, self.at(name), self.most(name)) for name in self.concerned(node))

    def entangled(self, node: ir.Node) -> bool:
        """Whether it compares several sizes, with an outcome that varying one of them at a time may not show."""
        if node.op_type not in COMPARING:
            return False
        names = [name for name in self.concerned(node)
                 if not self.found[name] and depends(node, self.at(name), self.most(name))]
        if len(names) < 2:
            return False
        elements = [changed(node, self.at(name), self.most(name)) for name in names]
        if all(e is not None and e.shape == elements[0].shape for e in elements) and np.sum(elements, axis=0).max() < 2:
            return False  # element by element, one size each, as exporters look for -1 in a shape
        met = [self.at(name)(size).value(node.outputs[0]) for name, sizes in self.of(node).items() for size in sizes]
        return not straight(self.scope, node) or (node.op_type == "Equal" and not any(a.any() for a in met))

    def edges(self) -> dict[str, list[int]]:
        """Symbol -> the sizes on both sides of every turn."""
        sizes: dict[str, dict[int, None]] = {}
        for node in self.turning:
            for name, found in self.of(node).items():
                beside = (turn + d for turn in found for d in (-1, 0, 1))
                sizes.setdefault(name, {}).update(dict.fromkeys(size for size in beside if size > 1))
        return {name: list(found) for name, found in sizes.items()}


def beyond_trial(scope: Scope, values: Iterable[ir.Value]) -> ir.Node | None:
    """A node among those that values follow from whose arithmetic on sizes no set of sizes can prove."""
    values = list(values)
    stack, seen, late = list(values), set(), []
    while stack:
        value = stack.pop()
        node = value.producer()
        if value in seen or node is None or kind(value, scope) is not Kind.STRUCTURAL:
            continue
        seen.add(value)
        if node.op_type not in SUFFICIENT or _turns_too_late(scope, node) or cuts_a_length(scope, node):
            return node
        if turns_somewhere(scope, node):
            late.append(node)
        stack.extend(v for v in node.inputs if v is not None)  # data, of which only the shape is used, is passed over
        stack.extend(v for body in bodies(node) for v in body.outputs)
    return _too_many_cases(Turns(scope, *symbols(scope, values)), late) if late else None


def _too_many_cases(found: Turns, nodes: list[ir.Node]) -> ir.Node | None:
    """A node that turns at more sizes than can be found, or, with others, in more combinations than can be tried."""
    for node in nodes:
        if found.erratic(node) or found.entangled(node):
            return node
    at = {node: found.of(node) for node in nodes}
    several = [node for node, of in at.items() if sum(not found.found[name] for name in of) > 1]
    if several and sum(map(bool, at.values())) > 1:
        return several[0]  # of two conditions on both sizes not every combination is met
    edges = found.edges()
    if math.prod(map(len, edges.values())) > MOST_COMBINATIONS or _pixels(edges, found.sizes) > MOST_PIXELS:
        return next((node for node, of in at.items() if of), nodes[0])
    return None


def _pixels(edges: dict[str, list[int]], sizes: dict[str, int]) -> int:
    return math.prod(sum(edges.get(name, [size])) for name, size in sizes.items()) if len(edges) > 1 else 0


def _turns_too_late(scope: Scope, node: ir.Node) -> bool:
    """Whether it turns beyond the tried sizes: it compares with a constant that only larger ones reach (a sentinel
    that no size reaches is none), or steps and is never seen to."""
    if wraps(node):
        return True
    if node.op_type in COMPARING:
        constants = [a for a in map(scope.constant, node.inputs) if a is not None and a.size <= FEW]
        return any(LARGEST_SIZE < abs(float(c)) < 2**31 - 1 for a in constants if a.dtype.kind in "iuf" for c in a.flat)
    return steps(scope, node) and not Turns(scope, *symbols(scope, node.outputs[:1])).of(node)


def trials(scope: Scope, values: Iterable[ir.Value], batches: tuple[int, ...] = (2, 3)) -> list[Evaluator]:
    """An evaluator for each assignment of sizes to try; a single one where `values` depend on no symbol.

    The last ones may be `optional`: sizes with which the graph need not run at all, but if it does, what is proven
    must hold. They set batch sizes apart that usually are equal, try a batch of 1, and integer inputs as flags.
    """
    found, turning = symbols(scope, values)
    if not found:
        return [Evaluator(scope, {})]
    sets = assignments(found, batches)
    edges = Turns(scope, found, turning).edges() if turning else {}
    beside = [sets[0] | {n: batches[k % len(batches)] for n in found if found[n]} | {name: size}
              for name, sizes in edges.items() for k, size in enumerate(sizes)]
    if len(edges) > 1 and math.prod(map(len, edges.values())) <= MOST_COMBINATIONS:
        # conditions may be joined: only where both are met does something else happen
        beside += [sets[0] | dict(zip(edges, sizes)) for sizes in itertools.product(*edges.values())]
    return [Evaluator(scope, sizes) for sizes in [*sets, *beside]] + [
        Evaluator(scope, sets[0] | changed, optional=True) for changed in unusual(found)]


def assignments(found: dict[str, bool], batches: tuple[int, ...] = (2, 3)) -> list[dict[str, int]]:
    """Sizes of all symbols, with which every graph must run."""
    spatial = [name for name, is_batch in found.items() if not is_batch]
    batch = itertools.cycle(batches)
    return [assign(found, spatial, row, next(batch)) for row in range(len(SPATIAL) if spatial else len(batches))]


def unusual(found: dict[str, bool]) -> list[dict[str, int]]:
    """What to change of an assignment: sizes with which a graph need not run."""
    together = [name for name, is_batch in found.items() if is_batch]
    changes = [dict.fromkeys(together, n) for n in (1, 5)] if together else []
    changes += [{name: n} for name in together if len(together) > 1 for n in (1, 4, 7)]
    return changes + [{name: n} for name in found if name.endswith("]") for n in FLAGS]


def assign(found: Iterable[str], spatial: list[str], row: int, batch: int) -> dict[str, int]:
    """Sizes of all symbols; no two spatial ones agree in every row, and none stays the same."""
    sizes = dict.fromkeys(found, batch)
    for k, name in enumerate(spatial):
        turn, column = divmod(k, len(SPATIAL[0]))
        sizes[name] = SPATIAL[(row + turn) % len(SPATIAL)][column] + 2 * turn
    return sizes
