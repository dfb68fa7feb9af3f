"""Numbers made of sizes, taken as sizes of their own: what holds for any such number holds however it was computed.

A height rounded up to a multiple of 32, or cut off at 512, is awkward to try: it turns at many sizes. Where a grid
uses it as its height and nothing else, the grid can be proven for *every* height, and how it was computed is left out.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from rewriter.evaluator import Evaluator, Kind, kind
from rewriter.graphs import bodies
from rewriter.trials import FLAGS, SUFFICIENT, Turns, assignments, symbols, unusual
from rewriter.turns import (
    CHOOSING,
    COMPARING,
    LARGEST_BATCH,
    LARGEST_SIZE,
    bisected,
    cuts_a_length,
    few,
    side_of,
    steps,
    turns_somewhere,
    wraps,
)

if TYPE_CHECKING:
    from rewriter.scopes import Scope


@dataclasses.dataclass(frozen=True)
class Unknowns:
    """Numbers that may take any value.

    Attributes:
        groups: (values that are computed alike, so are the same number; their dtype; their shape).
        comparing: nodes between these numbers and the grid that compare or choose, always with the same outcome.
    """

    groups: tuple[tuple[tuple[ir.Value, ...], np.dtype, tuple[int, ...]], ...]
    comparing: tuple[ir.Node, ...]

    def trials(self, scope: Scope, values: Iterable[ir.Value]) -> list[Evaluator]:
        """As `trials.trials`, with these numbers varying like the symbols; none where an outcome depends on them."""
        found, _ = symbols(scope, values)
        names = [f" number {k}" for k in range(len(self.groups))]
        found |= dict.fromkeys(names, False)

        def evaluator(sizes: dict[str, int], *, optional: bool = False) -> Evaluator:
            fixed = {value: np.full(shape, sizes[name], dtype)
                     for name, (same, dtype, shape) in zip(names, self.groups) for value in same}
            return Evaluator(scope, sizes, fixed=fixed, optional=optional)

        sets = assignments(found)
        for name in found if self.comparing else ():
            most = LARGEST_BATCH if found[name] else LARGEST_SIZE
            at = functools.cache(lambda size, name=name: evaluator(sets[0] | {name: size}))
            if any(_differs(node, at, most, name in names) for node in self.comparing):
                return []
            if not found[name]:
                sets.append(sets[0] | {name: 2})
        return [evaluator(sizes) for sizes in sets] + [
            evaluator(sets[0] | changed, optional=True) for changed in unusual(found)]


def unknowns(scope: Scope, values: Iterable[ir.Value]) -> Unknowns | None:
    """The numbers nearest to `values` behind which all arithmetic on sizes that turns is found; None where there are
    none, or where some is found elsewhere."""
    groups: dict[int, list[ir.Value]] = {}
    comparing: dict[ir.Node, None] = {}
    keys = Keys(scope)
    stack, seen = list(values), set()
    while stack:
        value = stack.pop()
        node = value.producer()
        if value in seen or node is None or kind(value, scope) is not Kind.STRUCTURAL:
            continue
        seen.add(value)
        odd = node.op_type not in SUFFICIENT or node.op_type == "Mod" or wraps(node) or steps(scope, node)
        if _is_number(scope, value) and (odd or (node.op_type in CHOOSING and _chooses(scope, node))):
            groups.setdefault(keys.of(value), []).append(value)
            continue
        if odd or cuts_a_length(scope, node):
            return None
        if node.op_type in COMPARING or turns_somewhere(scope, node):
            comparing[node] = None
        stack.extend(v for v in node.inputs if v is not None)
        stack.extend(v for body in bodies(node) for v in body.outputs)
    known = [(tuple(same), scope.dtype(same[0]).numpy(), scope.measured_shape(same[0])) for same in groups.values()]
    return Unknowns(tuple(known), tuple(comparing)) if known else None


def _chooses(scope: Scope, node: ir.Node) -> bool:
    """Whether what it chooses depends on the size."""
    here = Turns(scope, *symbols(scope, node.outputs[:1]))
    return any(_late(sizes) for sizes in here.of(node).values()) or here.erratic(node)


def _differs(node: ir.Node, at: Callable[[int], Evaluator], most: int, any_number: bool) -> bool:
    """Whether the outcome depends on the size, or on a number, which may be a flag or a remainder."""
    if _late(bisected(lambda size: side_of(at(size), node), most)):
        return True
    if not any_number or not all(few(at(2).scope, v) for v in node.inputs if v is not None):
        return False  # of positions there are as many as the number is
    return any(side_of(at(flag), node) != side_of(at(4), node) for flag in FLAGS)


def _late(found: list[int]) -> bool:
    """Whether something turns; at 2, which is tried, operands are often equal."""
    return any(size > 3 for size in found)


def _is_number(scope: Scope, value: ir.Value) -> bool:
    dtype, shape = scope.dtype(value), scope.measured_shape(value)
    return dtype is not None and dtype != ir.DataType.BOOL and shape is not None and all(d == 1 for d in shape)


class Keys:
    """Numbers for values: values that are computed alike have the same."""

    def __init__(self, scope: Scope):
        self.scope = scope
        self._keys: dict[ir.Value, int] = {}
        self._met: dict[tuple, int] = {}

    def of(self, target: ir.Value) -> int:
        stack = [target]
        while stack:
            value = stack[-1]
            pending = [v for v in self._needs(value) if v not in self._keys]
            if value in self._keys or not pending:
                if value not in self._keys:
                    self._keys[value] = self._met.setdefault(self._made(value), len(self._met))
                stack.pop()
            else:
                stack.extend(pending)
        return self._keys[target]

    def _needs(self, value: ir.Value) -> list[ir.Value]:
        node = value.producer()
        if node is None or kind(value, self.scope) is not Kind.STRUCTURAL:
            return []
        outputs = [body.outputs[value.index()] for body in bodies(node)] if node.op_type == "If" else []
        return [*(v for v in node.inputs if v is not None), *outputs]

    def _made(self, value: ir.Value) -> tuple:
        node = value.producer()
        if (constant := self.scope.constant(value)) is not None:
            return "constant", str(constant.dtype), constant.shape, constant.tobytes()
        if node is None or kind(value, self.scope) is not Kind.STRUCTURAL or (bodies(node) and node.op_type != "If"):
            return "value", id(value)
        attributes = tuple(sorted((name, _text(a)) for name, a in node.attributes.items()
                                  if a.type != ir.AttributeType.GRAPH))
        needs = self._needs(value)
        return node.domain, node.op_type, attributes, value.index(), tuple(self._keys[v] for v in needs), tuple(
            v is None for v in node.inputs)


def _text(attribute: ir.Attr) -> str:
    if attribute.type == ir.AttributeType.TENSOR:
        return f"{attribute.value.dtype} {attribute.value.shape} {attribute.value.tobytes()!r}"
    return f"{attribute.type} {attribute.value!r} {attribute.ref_attr_name}"
