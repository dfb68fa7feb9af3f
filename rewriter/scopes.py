"""Scopes: a graph, an If / Loop / Scan body or a function body, with what can be known there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from rewriter.evaluator import EvaluationError, Evaluator, Kind, kind
from rewriter.evaluator.budget import Budget
from rewriter.functions import is_ours
from rewriter.graphs import onnx_opset
from rewriter.shapes import Dims, ShapeTable, contradiction
from rewriter.trials import trials
from rewriter.vocabulary import LOWEST_OPSET, Operator

MOST_STEPS = 100
# Operators whose result has the dtype of one operand, where ONNX's inference may not get to tell.
SAME_TYPE = {("com.microsoft", "FusedMatMul"): 0, ("", "Where"): 1, ("", "CastLike"): 1} | {("", name): 0 for name in (
    "Add", "Sub", "Mul", "Div", "MatMul", "Gemm", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Split",
    "Gather", "Expand", "Concat", "Identity", "Neg", "ReduceSum", "AffineGrid", "GridSample", "Pad", "Tile")}


T = TypeVar("T")


class Facts:
    """What holds for a whole model, computed when first asked for. One instance per run of the engine."""

    def __init__(self, model: ir.Model, budget: Budget | None = None):
        self.model, self.budget = model, budget or Budget(model.graph.num_nodes())
        self.folded: dict[ir.Value, tuple[np.ndarray, float]] = {}  # constants with their rounding units
        self.kinds: dict[ir.Value, int] = {}  # evaluator.Kind, memoised
        self.turns: dict[tuple[ir.Node, str], list[int]] = {}  # sizes at which arithmetic turns, memoised
        self.measuring: list[Evaluator] = []  # evaluators that only learn shapes

    @functools.cached_property
    def shapes(self) -> ShapeTable:
        return ShapeTable(self.model)

    @functools.cached_property
    def contradiction(self) -> str | None:
        """Of `shapes.contradiction`."""
        return contradiction(self.model)


class Scope:
    """What a pattern may ask about the place it looks at.

    Attributes:
        graph: the `ir.Graph` or `ir.Function` whose nodes are looked at.
        path: where it lies, for reports: "graph", "graph/If_3.then_branch", "function my::f".
        opset: the version of `ai.onnx` that holds here.
    """

    def __init__(self, facts: Facts, graph: ir.Graph | ir.Function, path: str, opset: int, around: tuple = ()):
        self.facts, self.graph, self.path, self.opset = facts, graph, path, opset
        self._homes = {id(graph), *around}
        self._memo: dict[str, object] = {}

    def memo(self, key: str, make: Callable[[], T]) -> T:
        """What `make` returned when this scope was first asked for `key`: where a pattern, which has no state of its
        own, keeps what holds for a whole graph."""
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def shape(self, value: ir.Value) -> Dims | None:
        """Dims of a value, inferred from the model's inputs; symbols (str) where unknown; None if the rank is."""
        return self.facts.shapes.shape(value)

    def measured_shape(self, value: ir.Value) -> Dims | None:
        """As `shape`, and where inference gives up (inside branches, behind foreign operators) by evaluating."""
        shape = self.shape(value)
        if shape is not None and self.anchored(value):
            return shape
        try:
            seen = [trial.measure(value) for trial in self._measuring]
        except EvaluationError:
            return shape
        if len({len(dims) for dims in seen}) > 1:
            return shape
        return tuple(dims[0] if len(set(dims)) == 1 else f"{value.name}.{axis}" for axis, dims in enumerate(zip(*seen)))

    @property
    def _measuring(self) -> list[Evaluator]:
        """Evaluators that give every dim of the model's inputs a size, shared by all scopes."""
        if not self.facts.measuring:
            every = trials(self, self.facts.model.graph.inputs)
            self.facts.measuring = [trial for trial in every if not trial.optional]
        return self.facts.measuring

    def declared_shape(self, value: ir.Value) -> ir.Shape | None:
        """The shape to write for a new value: dims that are known, symbols of the model's inputs, else unknown."""
        shape = self.measured_shape(value)
        if shape is None or self.path.startswith("function"):  # a function's shapes are those of its calls
            return None
        anchors = self.facts.shapes.anchors
        return ir.Shape([d if isinstance(d, int) or d in anchors else None for d in shape])

    def dtype(self, value: ir.Value) -> ir.DataType | None:
        """The element type: inferred, or else what its producer makes of its operands."""
        for _ in range(MOST_STEPS):
            known = self.facts.shapes.dtype(value)
            node = value.producer()
            if known is not None or node is None:
                return known
            if node.op_type == "Cast" and node.domain == "":
                to = node.attributes["to"]
                return None if to.is_ref() else ir.DataType(to.as_int())  # a caller of the function chooses
            if node.op_type == "If" and node.domain == "":
                value = node.attributes["then_branch"].as_graph().outputs[value.index()]
            elif (node.domain, node.op_type) in SAME_TYPE:
                value = node.inputs[SAME_TYPE[node.domain, node.op_type]]
            else:
                return None
        return None

    def static(self, value: ir.Value) -> bool:
        """Whether every dim is known."""
        shape = self.shape(value)
        return shape is not None and all(isinstance(d, int) for d in shape)

    def anchored(self, value: ir.Value) -> bool:
        """Whether the shape is known in terms of the dims of the model's inputs alone."""
        shape, anchors = self.shape(value), self.facts.shapes.anchors
        return shape is not None and all(isinstance(d, int) or d in anchors for d in shape)

    def constant(self, value: ir.Value | None) -> np.ndarray | None:
        """The value of a constant (initializers that no caller can override, and what folds from them), or None."""
        if value is None or kind(value, self) is not Kind.CONSTANT:
            return None
        try:
            return Evaluator(self, {}).value(value)
        except EvaluationError:
            return None

    def structural(self, value: ir.Value) -> bool:
        """Whether a value is computed from constants, shapes and small integer inputs alone."""
        return kind(value, self) is not Kind.DATA

    def trials(self, values: Iterable[ir.Value]) -> list[Evaluator]:
        """Evaluators under enough assignments of sizes to the symbols that `values` depend on; one if on none."""
        return trials(self, values)

    def refusal(self, operator: Operator) -> str | None:
        """Why a node of this operator cannot be written here, or None: its function follows the model's opset."""
        lowest, model_opset = max(LOWEST_OPSET, operator.since), onnx_opset(self.facts.model.opset_imports)
        if self.opset < lowest:
            return f"{operator.name} needs opset {lowest} or newer, this model has {self.opset}"
        if self.opset != model_opset:
            return f"the function around it is written for opset {self.opset}, the model for {model_opset}"
        return None

    def visible(self, value: ir.Value) -> bool:
        """Whether a node of this scope could read `value`: it lives here or in a graph around here."""
        return id(value.graph) in self._homes


def scopes(facts: Facts) -> Iterator[Scope]:
    """Every scope of a model, outer graphs first; the bodies of `custom.ops` functions are not scopes."""
    model = facts.model
    yield from _nested(facts, model.graph, "graph", onnx_opset(model.opset_imports), ())
    for function in model.functions.values():
        if not is_ours(function):
            opset = onnx_opset(function.opset_imports) or onnx_opset(model.opset_imports)
            yield from _nested(facts, function.graph, f"function {function.domain}::{function.name}", opset, ())


def _nested(facts: Facts, graph: ir.Graph, path: str, opset: int, around: tuple) -> Iterator[Scope]:
    yield Scope(facts, graph, path, opset, around)
    for node in tuple(graph):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                inner = f"{path}/{node.name or node.op_type}.{attribute.name}"
                yield from _nested(facts, attribute.as_graph(), inner, opset, (*around, id(graph)))
