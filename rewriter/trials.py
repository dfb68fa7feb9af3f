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
COMPARING = frozenset({"Mod", "Min", "Max", "Clip", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
STEPPING = frozenset({"Ceil", "Floor", "Round", "ReduceMax", "ReduceMin"})  # and integer Div, narrowing Cast
LARGEST_SIZE = 4096  # up to which sizes are looked for at which arithmetic turns
LARGEST_BATCH = 64
MOST_TURNS = 6  # below, at, above; more for what is not monotonic
FEW = 8  # elements a value made of sizes may have
FLAGS = (0, 1, -1, -2)  # what an integer input may be beside an extent


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
            if kind(value, scope) is Kind.STRUCTURAL and _turns_somewhere(scope, node):
                turning[node] = None
            stack.extend(v for v in node.inputs if v is not None)
            stack.extend(v for body in bodies(node) for v in body.outputs)
        else:
            note(scope.shape(value))
    return found, list(turning)


def beyond_trial(scope: Scope, values: Iterable[ir.Value]) -> ir.Node | None:
    """A node among those that values follow from whose arithmetic on sizes no set of sizes can prove."""
    stack, seen = list(values), set()
    while stack:
        value = stack.pop()
        node = value.producer()
        if value in seen or node is None or kind(value, scope) is not Kind.STRUCTURAL:
            continue
        seen.add(value)
        if node.op_type not in SUFFICIENT or _turns_too_late(scope, node) or _cuts_a_length(scope, node):
            return node
        stack.extend(v for v in node.inputs if v is not None)  # data, of which only the shape is used, is passed over
        stack.extend(v for body in bodies(node) for v in body.outputs)
    return None


def _turns_too_late(scope: Scope, node: ir.Node) -> bool:
    """Whether it turns beyond the tried sizes: it compares with a constant that only larger ones reach (a sentinel
    that no size reaches is none), or steps and is never seen to."""
    if node.op_type == "Cast" and _wraps(node):
        return True
    if node.op_type in COMPARING:
        constants = [a for a in map(scope.constant, node.inputs) if a is not None and a.size <= FEW]
        return any(LARGEST_SIZE < abs(float(c)) < 2**31 - 1 for a in constants if a.dtype.kind in "iuf" for c in a.flat)
    if not _steps(scope, node):
        return False
    found, _ = symbols(scope, node.outputs[:1])
    return not any(_turns(scope, node, name, _assign(found, [n for n in found if not found[n]], 0, 2),
                          LARGEST_BATCH if is_batch else LARGEST_SIZE, {}) for name, is_batch in found.items())


def _cuts_a_length(scope: Scope, node: ir.Node) -> bool:
    """Whether a Slice takes a part of an axis as long as some size, by bounds that are constants."""
    if node.op_type != "Slice" or len(node.inputs) < 3:
        return False
    bounds = [scope.constant(v) for v in node.inputs[1:3]]
    if all(b is None or all(abs(int(n)) <= 2 or abs(int(n)) >= 2**31 - 1 for n in b.flat) for b in bounds):
        return False
    shape = scope.measured_shape(node.inputs[0])
    if shape is None or len(node.inputs) < 4 or (axes := scope.constant(node.inputs[3])) is None:
        return shape is None or not all(isinstance(d, int) for d in shape)
    return any(not isinstance(shape[int(a)], int) for a in axes.flat)


def _wraps(node: ir.Node) -> bool:
    """Whether it is a Cast to 8 or 16 bits, which sizes overflow."""
    to = node.attributes["to"]
    return not to.is_ref() and (dtype := ir.DataType(to.as_int())).is_integer() and dtype.itemsize < 4


def _steps(scope: Scope, node: ir.Node) -> bool:
    """Whether it makes steps of what grows evenly."""
    if node.op_type in STEPPING:
        return True
    if node.op_type == "Div":
        dtype = scope.dtype(node.outputs[0])
        return dtype is None or dtype.is_integer()
    if node.op_type != "Cast" or node.attributes["to"].is_ref():
        return False
    before, after = scope.dtype(node.inputs[0]), ir.DataType(node.attributes["to"].as_int())
    return after == ir.DataType.BOOL or (after.is_integer() and (before is None or before.is_floating_point()))


def _turns_somewhere(scope: Scope, node: ir.Node) -> bool:
    return node.op_type in COMPARING or _steps(scope, node) or (
        node.op_type == "Range" and any((a := scope.constant(v)) is None or a != n
                                        for v, n in zip(node.inputs[::2], (0, 1))))


def trials(scope: Scope, values: Iterable[ir.Value], batches: tuple[int, ...] = (2, 3)) -> list[Evaluator]:
    """An evaluator for each assignment of sizes to try; a single one where `values` depend on no symbol.

    The last ones may be `optional`: sizes with which the graph need not run at all, but if it does, what is proven
    must hold. They set batch sizes apart that usually are equal, try a batch of 1, and integer inputs as flags.
    """
    found, turning = symbols(scope, values)
    if not found:
        return [Evaluator(scope, {})]
    spatial = [name for name, is_batch in found.items() if not is_batch]
    batch = itertools.cycle(batches)
    sets = [_assign(found, spatial, row, next(batch)) for row in range(len(SPATIAL) if spatial else len(batches))]
    edges: dict[tuple[str, int], None] = {}
    evaluators: dict[tuple[str, int], Evaluator] = {}
    for node in turning:
        concerns, _ = symbols(scope, node.outputs[:1])
        for name in sorted(concerns.keys() & found.keys()):
            most = LARGEST_BATCH if found[name] else LARGEST_SIZE
            for turn in _turns(scope, node, name, sets[0], most, evaluators):
                edges |= dict.fromkeys((name, size) for size in (turn - 1, turn, turn + 1) if size > 1)
    sets += [_assign(found, spatial, 0, next(batch)) | {name: size} for name, size in edges]
    return [Evaluator(scope, sizes) for sizes in sets] + [
        Evaluator(scope, sets[0] | changed, optional=True) for changed in _optional(found)]


def _optional(found: dict[str, bool]) -> list[dict[str, int]]:
    together = [name for name, is_batch in found.items() if is_batch]
    changes = [dict.fromkeys(together, n) for n in (1, 5)] if together else []
    changes += [{name: n} for name in together if len(together) > 1 for n in (1, 4, 7)]
    return changes + [{name: n} for name in found if name.endswith("]") for n in FLAGS]


def _assign(found: Iterable[str], spatial: list[str], row: int, batch: int) -> dict[str, int]:
    """Sizes of all symbols; no two spatial ones agree in every row, and none stays the same."""
    sizes = dict.fromkeys(found, batch)
    for k, name in enumerate(spatial):
        turn, column = divmod(k, len(SPATIAL[0]))
        sizes[name] = SPATIAL[(row + turn) % len(SPATIAL)][column] + 2 * turn
    return sizes


def _turns(scope: Scope, node: ir.Node, name: str, sizes: dict[str, int], most: int,
           evaluators: dict[tuple[str, int], Evaluator]) -> list[int]:
    """The sizes of one symbol from which on a node does otherwise than for smaller ones (memoised for the run).

    `evaluators`, one for each size tried, are shared by the nodes: they have most of their operands in common.
    """

    def side(size: int):
        if (name, size) not in evaluators:
            evaluators[name, size] = Evaluator(scope, sizes | {name: size})
        return _side(evaluators[name, size], node)

    key = node, name
    if key not in scope.facts.turns:
        scope.facts.turns[key] = _bisected(side, most)
    return scope.facts.turns[key]


def _side(evaluator: Evaluator, node: ir.Node):
    """What a node does with these sizes: how its operands compare, or what comes out."""
    if node.op_type not in COMPARING:
        value = evaluator.value(node.outputs[0])
        return value.shape, value.tobytes() if value.size <= FEW else None
    operands = [evaluator.value(v).astype(np.float64) for v in node.inputs if v is not None]
    if max(a.size for a in operands) > FEW:
        return None  # elements against a size: positions, not sizes, are compared
    return tuple(np.sign(a - b).tobytes() for a, b in itertools.combinations(operands, 2))


def _bisected(side, most: int) -> list[int]:
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
