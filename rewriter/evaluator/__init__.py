"""Evaluating parts of a graph at rewrite time, exactly as ONNX defines them, in numpy.

Two kinds of values: *structural* ones follow from constants, shapes and small integer inputs and are computed in
their own dtypes (integer and half-precision semantics matter there); everything else is data, and evaluates only as
a function of values that are given. Sizes come from an assignment of integers to the symbols in shapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from rewriter.evaluator import elementwise, movement, products, shaping  # noqa: F401 (they fill the table)
from rewriter.evaluator.budget import HELD, owner
from rewriter.evaluator.kinds import (
    ONLY_SHAPE,
    ONLY_TYPE,
    Kind,
    branch_outputs,
    entry,
    feeders_of,
    is_size_input,
    kind,
    operands_of,
    size_symbols,
)
from rewriter.evaluator.table import MOST_AXES, Call, EvaluationError, dense, guard, numeric, rounding_unit

if TYPE_CHECKING:
    from rewriter.scopes import Scope

__all__ = ["ONLY_TYPE", "EvaluationError", "Evaluator", "Kind", "entry", "guard", "is_size_input", "kind",
           "size_symbols"]

MOST_STEPS = 500  # nodes evaluated to learn one shape
KEEP = 1 << 16  # bytes up to which a folded constant is kept for later evaluations
SHAPED_BY = {"ConstantOfShape": (0,), "Range": (0, 1, 2), "NonZero": (0,), "OneHot": (1,), "Slice": (1, 2, 3, 4),
             "Pad": (1, 3)} | dict.fromkeys((
                 "AffineGrid", "Expand", "Reshape", "Split", "Squeeze", "Tile", "Unsqueeze", "ReduceSum", "ReduceMean",
                 "ReduceProd", "ReduceMin", "ReduceMax"), (1,))  # operands whose values decide the result's shape


class Evaluator:
    """Values under one assignment of sizes.

    Attributes:
        sizes: symbol -> int.
        assumes: shapes that some values are taken to have, whatever is declared of them.
        fixed: what some structural values are taken to be, whatever they are computed from.
        optional: whether the graph need not run with these sizes and shapes at all.
        unit: rounding unit of the coarsest float dtype that went into the parameter-free operands of what was `run`.
    """

    def __init__(self, scope: Scope, sizes: Mapping[str, int],
                 assumes: Mapping[ir.Value, tuple[int, ...]] | None = None, *,
                 fixed: Mapping[ir.Value, np.ndarray] | None = None, optional: bool = False):
        self.scope, self.sizes, self.unit = scope, sizes, 0.0
        self.assumes, self.fixed = dict(assumes or {}), dict(fixed or {})
        self.optional = optional or bool(assumes)
        self._memo: dict[ir.Value, np.ndarray] = dict(self.fixed)
        self._budget = scope.facts.budget
        self._units = {value: rounding_unit(array.dtype) for value, array in self.fixed.items()}
        self._heavy: set[ir.Value] = set()  # of the memo, what `forget` may have to drop
        self._held: set[int] = set()  # the arrays behind the memo, by identity, and their bytes
        self._bytes = 0
        self._weigh(self._memo)
        # shapes met while evaluating
        self._seen = self.assumes | {value: array.shape for value, array in self.fixed.items()}

    def shape(self, value: ir.Value) -> tuple[int, ...]:
        """The concrete shape of a value.

        Raises:
            EvaluationError: nothing tells it, or no array has so many axes.
        """
        shape = self._shape(value)
        if len(shape) > MOST_AXES:
            raise EvaluationError(f"{value.name} has {len(shape)} axes")
        return shape

    def _shape(self, value: ir.Value) -> tuple[int, ...]:
        if value in self._seen:
            return self._seen[value]
        dims = self.scope.shape(value)
        if dims is not None and all(isinstance(d, int) for d in dims):
            return dims
        if not self.scope.anchored(value) and self._run_on_zeros(value):
            return self._seen[value]
        if dims is None:
            raise EvaluationError(f"the shape of {value.name} is unknown")
        try:
            return tuple(d if isinstance(d, int) else self.sizes[d] for d in dims)
        except KeyError as error:
            raise EvaluationError(f"dimension {error.args[0]} of {value.name} is unknown") from None

    def measure(self, value: ir.Value) -> tuple[int, ...]:
        """As `shape`, for an evaluator that is kept: large arrays met on the way are forgotten again."""
        shape = self.shape(value)
        self.forget(KEEP)
        return shape

    def forget(self, least: int) -> None:
        """Drop what was computed of more than `least` bytes."""
        dropped = [value for value in self._heavy if owner(self._memo[value]).nbytes > least]
        if dropped:
            for value in dropped:
                del self._memo[value]
            self._heavy.clear()
            self._held.clear()
            self._bytes = 0
            self._weigh(self._memo)

    def _weigh(self, values: Iterable[ir.Value]) -> None:
        """Note how large what is in the memo is."""
        for value in values:
            whole = owner(self._memo[value])
            if id(whole) not in self._held:
                self._held.add(id(whole))
                self._bytes += whole.nbytes
            if whole.nbytes > KEEP and value not in self.fixed:
                self._heavy.add(value)

    def value(self, target: ir.Value) -> np.ndarray:
        """A structural value.

        Raises:
            EvaluationError: it depends on data, or on something the evaluator cannot compute.
        """
        if kind(target, self.scope) is Kind.DATA:
            raise EvaluationError(f"{target.name} depends on data")
        return self._evaluate([target], {})[target]

    def rounding_unit(self, value: ir.Value) -> float:
        """Of the coarsest float dtype that went into a structural value that was evaluated."""
        return self._units.get(value, 0.0)

    def run(self, target: ir.Value, given: Mapping[ir.Value, np.ndarray]) -> np.ndarray:
        """`target` as a function of the given values; casts between float types are left out of what depends on
        them, so the result is the exact affine function in float64 when the given arrays are."""
        return self._evaluate([target], dict(given))[target]

    def _evaluate(self, targets: Sequence[ir.Value], given: dict[ir.Value, np.ndarray]) -> dict:
        self._budget.hold(self)
        local = given
        carried = set(given)
        for value, array in given.items():
            self._seen[value] = array.shape
        held: set[int] = set()  # the arrays beyond the memo; none of them goes before the end
        beyond, stack = 0, list(targets)
        while stack:
            value = stack[-1]
            self._budget.step()
            if value in local or value in self._memo:
                stack.pop()
                continue
            pending = [v for v in self._needs(value, local) if v not in local and v not in self._memo]
            if pending:
                stack.extend(pending)
                continue
            self._compute(value, local, carried)
            array = self._known(value, local)
            self._budget.spend(array.nbytes)
            whole = owner(array)
            if id(whole) not in held and id(whole) not in self._held:
                held.add(id(whole))
                beyond += whole.nbytes
            if self._bytes + beyond > HELD:
                raise EvaluationError(f"evaluating {targets[0].name} takes more than {HELD >> 30} GiB")
            stack.pop()
        return {t: local[t] if t in local else self._memo[t] for t in targets}

    def _known(self, value: ir.Value, local: dict) -> np.ndarray:
        return local[value] if value in local else self._memo[value]

    def _needs(self, value: ir.Value, local: dict) -> list[ir.Value]:
        node = value.producer()
        if node is None or value in self.scope.facts.folded:
            return []
        if node.op_type in ONLY_SHAPE and node.domain == "":
            source = node.inputs[0]
            return [source] if source not in self._seen and self._better_evaluated(source, local) else []
        if node.op_type == "If" and node.domain == "":
            condition = node.inputs[0]
            if condition not in local and condition not in self._memo:
                return [condition]
            return [self._taken(node, value, local)]
        return operands_of(node)

    def _run_on_zeros(self, target: ir.Value) -> bool:
        """Learn the shape of a value that inference does not tell, by evaluating it on zeros from where it does."""
        zeros: dict[ir.Value, np.ndarray] = {}
        stack, seen = [target], set()
        while stack:
            value = stack.pop()
            if value in seen or value in zeros or kind(value, self.scope) is not Kind.DATA:
                continue
            seen.add(value)
            node, dtype = value.producer(), self.scope.dtype(value)
            if value is not target and self.scope.anchored(value) and dtype is not None:
                zeros[value] = np.zeros(guard(self.shape(value)), dtype.numpy())
            elif node is None or (feeders := self._live(node, value)) is None or len(seen) > MOST_STEPS:
                return False
            else:
                stack.extend(feeders)
        unit = self.unit
        try:
            self._evaluate([target], zeros)
        except EvaluationError:
            return False
        finally:
            self.unit = unit
        return target in self._seen

    def _better_evaluated(self, source: ir.Value, local: dict) -> bool:
        """Whether evaluating a value tells its shape more surely than inference, which may know a mere symbol."""
        if self.scope.static(source):
            return False
        if kind(source, self.scope) is not Kind.DATA:
            return True
        if self.scope.anchored(source):
            return False
        stack, seen = [source], set()
        while stack:  # it can be evaluated if all the data it needs is given
            value = stack.pop()
            if value in local or value in seen or kind(value, self.scope) is not Kind.DATA:
                continue
            seen.add(value)
            node = value.producer()
            if node is None or (feeders := self._live(node, value)) is None:
                return False
            stack.extend(feeders)
        return True

    def _live(self, node: ir.Node, value: ir.Value) -> list[ir.Value] | None:
        """As `feeders_of`, without the branch that is not taken where sizes tell which."""
        if node.op_type == "If" and node.domain == "" and kind(node.inputs[0], self.scope) is not Kind.DATA:
            condition = self._evaluate([node.inputs[0]], {})
            return [node.inputs[0], self._taken(node, value, condition)]
        return feeders_of(node, value)

    def _taken(self, node: ir.Node, value: ir.Value, local: dict) -> ir.Value:
        branches = branch_outputs(node, value.index())
        return branches[0] if bool(np.ravel(self._known(node.inputs[0], local))[0]) else branches[1]

    def _compute(self, value: ir.Value, local: dict, carried: set) -> None:
        node, folded = value.producer(), self.scope.facts.folded
        unit = 0.0
        if value in folded:
            (array, unit), depends = folded[value], False
            results = [array]
        elif node is None:
            results, depends = [self._source(value)], False
        elif node.op_type in ONLY_SHAPE and node.domain == "":
            results, depends = [self._shape_of(node)], False
        elif node.op_type == "If" and node.domain == "":
            taken = self._taken(node, value, local)
            if node.inputs[0] in carried:
                raise EvaluationError(f"the branch of {node.name} depends on data")
            self._keep(value, self._known(taken, local), taken in carried, self._units.get(taken, 0.0), local, carried)
            return
        else:
            depends = any(v in carried for v in operands_of(node))
            if any(v in carried for i in SHAPED_BY.get(node.op_type, ()) for v in node.inputs[i:i + 1]):
                raise EvaluationError(f"the shape of {value.name} depends on data")
            unit = max((self._units.get(v, 0.0) for v in node.inputs if v is not None), default=0.0)
            results = self._apply(node, local, depends)
            if depends:
                self.unit = max(self.unit, unit)
        for output, array in zip((value,) if node is None or len(results) == 1 else node.outputs, results):
            self._keep(output, array, depends, unit, local, carried)

    def _keep(self, value, array, depends, unit, local, carried) -> None:
        if depends:
            local[value] = array
            carried.add(value)
        else:
            self._memo[value] = array
            self._weigh([value])
            own = rounding_unit(array.dtype)
            self._units[value] = max(unit, own) if own else 0.0  # integers and flags are exact
            if array.nbytes <= KEEP and kind(value, self.scope) is Kind.CONSTANT:
                self.scope.facts.folded[value] = array, self._units[value]
        self._seen[value] = array.shape

    def _source(self, value: ir.Value) -> np.ndarray:
        if value.const_value is not None and not value.is_graph_input():
            return dense(value.const_value)
        if is_size_input(value, self.scope):
            elements = [self.sizes.get(symbol) for symbol in size_symbols(value, self.scope)]
            if None not in elements:
                return np.array(elements, self.scope.dtype(value).numpy()).reshape(self.scope.shape(value))
        raise EvaluationError(f"{value.name} is not known")

    def _shape_of(self, node: ir.Node) -> np.ndarray:
        shape, call = self.shape(node.inputs[0]), Call(node, [])
        if node.op_type == "Size":
            return np.array(math.prod(shape), np.int64)
        return np.array(shape[call.attr("start") : call.attr("end")], np.int64)

    def _apply(self, node: ir.Node, local: dict, depends: bool) -> list[np.ndarray]:
        rule = entry(node)
        if rule is None:
            raise EvaluationError(f"{node.domain or 'ai.onnx'}::{node.op_type} is not evaluated")
        skip = ONLY_TYPE.get(node.op_type)
        inputs = [None if v is None or i == skip else self._known(v, local) for i, v in enumerate(node.inputs)]
        if depends and node.op_type in ("Cast", "CastLike"):
            return [inputs[0]]
        like = None
        if skip is not None:
            dtype = self.scope.dtype(node.inputs[skip])
            if dtype is None:
                raise EvaluationError(f"the dtype of {node.inputs[skip].name} is unknown")
            like = numeric(dtype.numpy())
        try:
            with np.errstate(all="ignore"):
                result = rule.run(Call(node, inputs, like, self._budget.spend))
        except (ValueError, LookupError, TypeError, AttributeError, MemoryError, ArithmeticError) as error:
            # operands that do not fit together: the graph cannot run with these sizes
            raise EvaluationError(f"{node.op_type} {node.name}: {error}") from error
        return list(result) if isinstance(result, tuple) else [np.asarray(result)]
