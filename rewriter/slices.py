"""Backward slices through operators that are linear in what carries parameters, and the cuts through them.

Such a slice is an affine function of the values at any cut *by construction*: a few evaluations give it exactly.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from rewriter.evaluator import ONLY_TYPE, EvaluationError, Kind, entry, kind
from rewriter.scopes import Scope

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
MOST_VALUES = 4000  # a slice larger than this is no grid


@dataclasses.dataclass(frozen=True)
class LinearSlice:
    """What `target` is computed from, as far back as operators are linear.

    Attributes:
        target: the value looked at.
        feeds: data value -> the data values it is linear in; a leaf has an empty tuple.
        order: the values of `feeds`, nearest to the target first.
        leaves: where the walk stopped, with the reason.
        structural: the parameter-free operands met on the way.
        whole: False where the walk was given up: it went through too many values.
    """

    target: ir.Value
    feeds: dict[ir.Value, tuple[ir.Value, ...]]
    order: tuple[ir.Value, ...]
    leaves: dict[ir.Value, str]
    structural: tuple[ir.Value, ...]
    whole: bool = True

    def spine(self) -> list[ir.Value]:
        """The target and the values behind it, up to the first that is made from several: no cut of one of them is
        none of the target's."""
        values = [self.target]
        while len(feeders := self.feeds.get(values[-1], ())) == 1:
            values.append(feeders[0])
        return values

    def is_cut(self, cut: set[ir.Value]) -> bool:
        """Whether every path from the target to a leaf passes one of these values."""
        stack, seen = [self.target], set()
        while stack:
            value = stack.pop()
            if value in cut or value in seen:
                continue
            if value in self.leaves:
                return False
            seen.add(value)
            stack.extend(self.feeds[value])
        return True

    def between(self, cut: set[ir.Value]) -> list[ir.Node]:
        """The nodes on the way from the target back to the cut."""
        stack, seen, nodes = [self.target], set(), {}
        while stack:
            value = stack.pop()
            if value in cut or value in seen:
                continue
            seen.add(value)
            nodes[value.producer()] = None
            stack.extend(self.feeds[value])
        return list(nodes)


def linear_slice(target: ir.Value, scope: Scope) -> LinearSlice:
    """Walk back from `target`, a value that depends on data."""
    feeds: dict[ir.Value, tuple[ir.Value, ...]] = {}
    leaves: dict[ir.Value, str] = {}
    structural: dict[ir.Value, None] = {}
    queue = collections.deque([target])
    while queue:
        value = queue.popleft()
        if value in feeds:
            continue
        scope.facts.budget.step()
        if len(feeds) > MOST_VALUES:
            return LinearSlice(target, feeds, (), {}, (), whole=False)
        carriers, fixed, stop = _step(value, scope)
        feeds[value] = tuple(carriers)
        structural.update(dict.fromkeys(fixed))
        if stop:
            leaves[value] = stop
        queue.extend(carriers)
    return LinearSlice(target, feeds, tuple(feeds), leaves, tuple(structural))


def unavoidable_leaf(target: ir.Value, scope: Scope, small: Callable[[ir.Value], bool]) -> tuple[ir.Value, str] | None:
    """A leaf that some path from `target` reaches without passing a small value, with why the walk stops there: then
    no cut of small values exists, which this tells without the whole slice."""
    stack, seen = [target], set()
    while stack and len(seen) <= MOST_VALUES:
        value = stack.pop()
        if value in seen or (value is not target and small(value)):
            continue
        seen.add(value)
        carriers, _, stop = _step(value, scope)
        if stop:
            return value, stop
        stack.extend(carriers)
    return None


def _step(value: ir.Value, scope: Scope) -> tuple[list[ir.Value], list[ir.Value], str]:
    """(data operands, parameter-free operands, why the walk stops here or "")."""
    node = value.producer()
    if node is None:
        return [], [], "an input"
    if node.domain == "" and node.op_type == "If":
        return _through_branch(node, value, scope)
    rule = entry(node)
    if rule is None:
        return [], [], f"{node.op_type} is not linear"
    skip = ONLY_TYPE.get(node.op_type)
    operands = [(i, v) for i, v in enumerate(node.inputs) if v is not None and i != skip]
    carriers = [(i, v) for i, v in operands if kind(v, scope) is Kind.DATA]
    if node.op_type in ("Cast", "CastLike") and not {scope.dtype(v) for v in (value, *node.inputs[:1])} <= FLOATS:
        return [], [], "a cast between integers and floats is not linear"
    if not rule.linear(frozenset(i for i, _ in carriers)):
        return [], [], _why_not_linear(node, [v for _, v in carriers], scope)
    return [v for _, v in carriers], [v for _, v in operands if kind(v, scope) is not Kind.DATA], ""


def _why_not_linear(node: ir.Node, carriers: list[ir.Value], scope: Scope) -> str:
    for value in carriers:
        if value.is_graph_input() and value.const_value is not None:
            return f"{value.name} is an initializer that is an input too, so callers may override it"
    if len(carriers) < 2 or node.op_type not in ("Mul", "MatMul", "Einsum", "Gemm", "FusedMatMul"):
        return f"{node.op_type} is not linear in what it is given"
    return f"{node.op_type} multiplies {' with '.join(v.name or '?' for v in carriers)}, neither of them constant"


def _through_branch(node: ir.Node, value: ir.Value, scope: Scope):
    condition = node.inputs[0]
    if kind(condition, scope) is Kind.DATA:
        return [], [], "the branch taken depends on data"
    taken = set()
    for trial in scope.trials([condition]):
        try:
            taken.add(bool(np.ravel(trial.value(condition))[0]))
        except EvaluationError as error:
            if not trial.optional:
                return [], [], str(error)
    if len(taken) != 1:
        return [], [], "the branch taken depends on sizes"
    branch = node.attributes["then_branch" if taken.pop() else "else_branch"].as_graph()
    return [branch.outputs[value.index()]], [condition], ""
