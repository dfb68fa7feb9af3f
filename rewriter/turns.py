"""At which sizes arithmetic turns: where a comparison comes out otherwise, where a quotient takes its next step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from rewriter.evaluator import EvaluationError, Evaluator, Kind, kind
from rewriter.graphs import bodies

if TYPE_CHECKING:
    from rewriter.scopes import Scope

COMPARING = frozenset({"Mod", "Min", "Max", "Clip", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
STEPPING = frozenset({"Ceil", "Floor", "Round", "ReduceMax", "ReduceMin"})  # and integer Div, narrowing Cast
CHOOSING = frozenset({"Min", "Max", "Clip", "Where", "If"})  # one of their operands comes out
PRODUCTS = frozenset({"Mul", "Div", "MatMul", "Einsum", "ReduceProd"})
LARGEST_SIZE = 4096  # up to which sizes are looked for at which arithmetic turns
LARGEST_BATCH = 64
MOST_TURNS = 6  # below, at, above; more for what is not monotonic
FEW = 8  # elements a value made of sizes may have
SAMPLED = (*range(2, 66), *(int(66 * 1.066**k) for k in range(65)))  # sizes at which nothing unexpected may happen


def steps(scope: Scope, node: ir.Node) -> bool:
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


def wraps(node: ir.Node) -> bool:
    """Whether it is a Cast to 8 or 16 bits, which sizes overflow."""
    if node.op_type != "Cast":
        return False
    to = node.attributes["to"]
    return not to.is_ref() and (dtype := ir.DataType(to.as_int())).is_integer() and dtype.itemsize < 4


def turns_somewhere(scope: Scope, node: ir.Node) -> bool:
    return node.op_type in COMPARING or steps(scope, node) or (
        node.op_type == "Range" and any((a := scope.constant(v)) is None or not (a == n).all()
                                        for v, n in zip(node.inputs[::2], (0, 1))))


def cuts_a_length(scope: Scope, node: ir.Node) -> bool:
    """Whether a Slice takes a part of an axis as long as some size, by bounds that are constants."""
    if node.op_type != "Slice" or len(node.inputs) < 3:
        return False
    bounds = [scope.constant(v) for v in node.inputs[1:3]]
    if all(b is None or all(abs(int(n)) <= 2 or abs(int(n)) >= 2**31 - 1 for n in b.flat) for b in bounds):
        return False
    shape = scope.measured_shape(node.inputs[0])
    if shape is None or len(node.inputs) < 4 or (axes := scope.constant(node.inputs[3])) is None:
        return shape is None or not all(isinstance(d, int) for d in shape)
    return any(not -len(shape) <= a < len(shape) or not isinstance(shape[int(a)], int) for a in axes.flat)


def turns(scope: Scope, node: ir.Node, name: str, at: Callable[[int], Evaluator], most: int) -> list[int]:
    """The sizes of one symbol from which on a node does otherwise than for smaller ones (memoised for the run).

    `at` gives the evaluator for a size, one for all nodes: they have most of their operands in common.
    """
    key = node, name
    if key not in scope.facts.turns:
        scope.facts.turns[key] = bisected(lambda size: side_of(at(size), node), most)
    return scope.facts.turns[key]


def erratic(scope: Scope, node: ir.Node, name: str, at: Callable[[int], Evaluator], most: int) -> bool:
    """Whether a comparison comes out otherwise at sizes between those at which it is seen to turn, as that of a
    remainder does."""
    key = node, f"{name}, erratic"
    if key not in scope.facts.turns:
        scope.facts.turns[key] = _unexpected(scope, node, turns(scope, node, name, at, most), at, most)
    return bool(scope.facts.turns[key])


def _unexpected(scope: Scope, node: ir.Node, found: list[int], at: Callable[[int], Evaluator], most: int) -> list[int]:
    """Sizes that show that `found` is not all."""
    if node.op_type not in COMPARING or straight(scope, node):
        return []
    if len(found) == MOST_TURNS:
        return found
    try:
        sides = [side_of(at(size), node) for size in (2, *found)]
        return [size for size in SAMPLED if size <= most
                and side_of(at(size), node) != sides[sum(turn <= size for turn in found)]]
    except EvaluationError:
        return []  # the graph does not run with such sizes


def depends(node: ir.Node, at: Callable[[int], Evaluator], most: int) -> bool:
    """Whether what is compared changes with a size."""
    try:
        seen = [[at(size).value(v).tobytes() for v in node.inputs if v is not None] for size in (5, 6, 33, most)]
    except EvaluationError:
        return True
    return any(operands != seen[0] for operands in seen)


def changed(node: ir.Node, at: Callable[[int], Evaluator], most: int) -> np.ndarray | None:
    """Which elements of the difference of two operands change with a size; None where that cannot be told."""
    operands = [v for v in node.inputs if v is not None]
    if len(operands) != 2:
        return None
    try:
        seen = [np.subtract(*(at(size).value(v).astype(np.float64) for v in operands)) for size in (5, 6, 33, most)]
    except EvaluationError:
        return None
    if any(difference.shape != seen[0].shape for difference in seen):
        return None
    return np.any([difference != seen[0] for difference in seen], axis=0)


def straight(scope: Scope, node: ir.Node) -> bool:
    """Whether what is compared grows evenly with every size."""
    stack, seen = [v for v in node.inputs if v is not None], set()
    while stack:
        value = stack.pop()
        maker = value.producer()
        if value in seen or maker is None or kind(value, scope) is not Kind.STRUCTURAL:
            continue
        seen.add(value)
        varying = [v for v in maker.inputs if v is not None and kind(v, scope) is Kind.STRUCTURAL]
        if maker.op_type in COMPARING | CHOOSING or steps(scope, maker) or (
                maker.op_type in PRODUCTS and len(varying) > 1):
            return False
        stack.extend([*varying, *(v for body in bodies(maker) for v in body.outputs)])
    return True


def side_of(evaluator: Evaluator, node: ir.Node):
    """What a node does with these sizes: how its operands compare, or what comes out. Of values with as many elements
    as some size is large (positions, not sizes) only the extremes matter."""
    if node.op_type in ("Where", "If"):
        return evaluator.value(node.inputs[0]).tobytes() if few(evaluator.scope, node.inputs[0]) else None
    if node.op_type not in COMPARING:
        value = evaluator.value(node.outputs[0])
        if few(evaluator.scope, node.outputs[0]) or node.op_type == "Range" or not value.size:
            return value.shape, value.tobytes() if value.size <= FEW else None
        return value.min(), value.max()
    inputs = [v for v in node.inputs if v is not None]
    single = all(few(evaluator.scope, v) for v in inputs)
    operands = [evaluator.value(v).astype(np.float64) for v in inputs]
    differences = (np.sign(a - b) for a, b in itertools.combinations(operands, 2))
    return tuple(d.tobytes() if single or not d.size else (d.min(), d.max()) for d in differences)


def few(scope: Scope, value: ir.Value) -> bool:
    """Whether it holds few numbers, as many with every size."""
    shape = scope.measured_shape(value)
    return shape is not None and all(isinstance(d, int) for d in shape) and math.prod(shape) <= FEW


def bisected(side: Callable[[int], object], most: int) -> list[int]:
    """The sizes from which on `side` is another, from 2 on."""
    found: list[int] = []
    try:
        low, before = 2, side(2)
        while low < most and len(found) < MOST_TURNS:
            high = min(2 * low, most)
            if side(high) == before:
                low = high
                continue
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if side(middle) == before else (low, middle)
            found.append(high)
            low, before = high, side(high)
    except EvaluationError:
        pass  # sizes with which the graph does not run
    return found
