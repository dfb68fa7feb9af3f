"""How much is known of a value at rewrite time, and what it is evaluated from."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING

import onnx_ir as ir

from rewriter.evaluator.table import TABLE, Entry

if TYPE_CHECKING:
    from rewriter.scopes import Scope

ONLY_SHAPE = frozenset({"Shape", "Size"})
ONLY_TYPE = {"CastLike": 1}  # operand of which only the dtype is used


class Kind(enum.IntEnum):
    """How much is known of a value at rewrite time."""

    CONSTANT = 0
    STRUCTURAL = 1  # constant once sizes are
    DATA = 2


def entry(node: ir.Node) -> Entry | None:
    """How an operator computes and through which operands it is linear; None for one the evaluator does not know."""
    return TABLE.get((node.domain, node.op_type))


def is_size_input(value: ir.Value, scope: Scope) -> bool:
    """An integer input of the model of at most 8 elements: a size, an axis, a flag."""
    if value.graph is not scope.facts.model.graph or not value.is_graph_input():
        return False  # a body's or a function's may be a counter or a flag
    if scope.dtype(value) not in (ir.DataType.INT64, ir.DataType.INT32):
        return False
    shape = scope.shape(value)
    return shape is not None and all(isinstance(d, int) for d in shape) and math.prod(shape) <= 8


def size_symbols(value: ir.Value, scope: Scope) -> tuple[str, ...]:
    """The symbols that stand for the elements of a size input."""
    return tuple(f"{value.name}[{k}]" for k in range(math.prod(scope.shape(value))))


def operands_of(node: ir.Node) -> list[ir.Value]:
    """The operands whose values matter."""
    skip = ONLY_TYPE.get(node.op_type)
    return [v for i, v in enumerate(node.inputs) if v is not None and i != skip]


def branch_outputs(node: ir.Node, index: int) -> list[ir.Value]:
    """What an If gives as its output `index`: then, else."""
    return [node.attributes[name].as_graph().outputs[index] for name in ("then_branch", "else_branch")]


def feeders_of(node: ir.Node, value: ir.Value) -> list[ir.Value] | None:
    """The values that `value` is evaluated from; None if its producer is not one the evaluator knows."""
    if node.domain == "" and node.op_type == "If":
        return [node.inputs[0], *branch_outputs(node, value.index())]
    return operands_of(node) if entry(node) is not None else None


def kind(value: ir.Value, scope: Scope) -> Kind:
    """Classify a value (memoised for the run)."""
    memo = scope.facts.kinds
    stack = [value]
    while stack:
        current = stack[-1]
        if current in memo:
            stack.pop()
            continue
        needs, floor = _kind_needs(current, scope)
        pending = [v for v in needs if v not in memo]
        if pending:
            stack.extend(pending)
            continue
        memo[current] = max((memo[v] for v in needs), default=floor)
        memo[current] = max(memo[current], floor)
        stack.pop()
    return memo[value]


def _kind_needs(value: ir.Value, scope: Scope) -> tuple[list[ir.Value], Kind]:
    if value.is_graph_input():
        return [], Kind.STRUCTURAL if is_size_input(value, scope) else Kind.DATA
    if value.const_value is not None and value.producer() is None:
        return [], Kind.CONSTANT
    node = value.producer()
    if node is None:
        return [], Kind.DATA
    if node.domain == "" and node.op_type in ONLY_SHAPE:
        shape = scope.shape(node.inputs[0])
        known = shape is not None and all(isinstance(d, int) for d in shape)
        return [], Kind.CONSTANT if known else Kind.STRUCTURAL
    feeders = feeders_of(node, value)
    return ([], Kind.DATA) if feeders is None else (feeders, Kind.CONSTANT)
