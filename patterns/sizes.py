"""The `size` operand of a fused grid: a constant where sizes are, else wired from values the graph has."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
import onnx_ir as ir

from rewriter.builder import Builder
from rewriter.evaluator import EvaluationError, Evaluator, Kind, entry, kind
from rewriter.scopes import Scope
from rewriter.vocabulary import Miss

MOST_ELEMENTS = 8  # of a value that may hold a size


@dataclasses.dataclass(frozen=True)
class Element:
    """One extent: a constant, or element `index` of an integer value (of its shape, where `of_shape`); `single` where
    that value has no other element."""

    extent: int = 1
    value: ir.Value | None = None
    index: int = 0
    single: bool = False
    of_shape: bool = False


@dataclasses.dataclass(frozen=True)
class Size:
    """The operand (N, C, [D,] H, W): a value the graph has, or its elements.

    Attributes:
        whole, elements: one or the other.
        batch: where everything but the batch is constant, the size stays constant too (runtimes fold what follows
            from it), with a batch of 1; theta is expanded to this one.
    """

    whole: ir.Value | None
    elements: tuple[Element, ...] = ()
    batch: Element | None = None

    def expand(self, builder: Builder, theta: ir.Value) -> ir.Value:
        """theta, of the grid's batch where the size operand does not tell it."""
        if self.batch is None:
            return theta
        ones = builder.constant(np.ones(2, np.int64), "ones")
        shape = builder.op("Concat", [_one_element(builder, self.batch), ones], axis=0)
        return builder.op("Expand", [theta, shape])

    def emit(self, builder: Builder) -> ir.Value:
        if self.whole is not None:
            return self.whole
        if all(e.value is None for e in self.elements):
            return builder.constant(np.array([e.extent for e in self.elements], np.int64), "size")
        parts: list[ir.Value] = []
        run: list[int] = []
        for element in (*self.elements, None):
            if element is not None and element.value is None:
                run.append(element.extent)
                continue
            if run:
                parts.append(builder.constant(np.array(run, np.int64), "extent"))
                run = []
            if element is not None:
                parts.append(_one_element(builder, element))
        return builder.op("Concat", parts, dtype=ir.DataType.INT64, shape=[len(self.elements)], axis=0)


def _one_element(builder: Builder, element: Element) -> ir.Value:
    """Shape [1], int64."""
    value = element.value
    if element.of_shape:
        value = builder.op("Shape", [value], dtype=ir.DataType.INT64)
    if element.single:
        value = builder.op("Reshape", [value, builder.constant(np.array([1]), "one")])
    else:
        value = builder.op("Gather", [value, builder.constant(np.array([element.index]), "index")], axis=0)
    if not element.of_shape and builder.dtype(element.value) != ir.DataType.INT64:
        value = builder.op("Cast", [value], dtype=ir.DataType.INT64, to=int(ir.DataType.INT64))
    return value


class Proven(Protocol):
    """What is known of a grid whose size is wanted."""

    rank: int
    trials: tuple[Evaluator, ...]
    shapes: tuple[tuple[int, ...], ...]
    batch_is_thetas: bool


def wire(proof: Proven, grid: ir.Value, structural: Sequence[ir.Value], data: Sequence[ir.Value],
         scope: Scope, covers: Collection[ir.Node] = ()) -> Size | Miss:
    """The size operand, from the structural values (and what they come from) and the shapes of the data values that
    the grid is made of. Its batch is 1 (it adapts to theta's) unless the grid's batch is another one.

    Args:
        covers: the nodes that make the grid of theta.
    """
    wanted = [tuple(shape[axis] for shape in proof.shapes) for axis in range(proof.rank + 1)]
    if proof.batch_is_thetas:
        wanted[0] = (1,) * len(proof.trials)
    varying = [axis for axis, extents in enumerate(wanted) if len(set(extents)) > 1]
    sources = [] if not varying else _sources(structural, data, scope, proof.trials)
    if varying not in ([], [0]) and (whole := _whole(sources, proof, scope, covers)) is not None:
        return Size(whole)
    elements = []
    for axis, extents in enumerate(wanted):
        element = Element(extents[0]) if len(set(extents)) == 1 else _find(extents, sources)
        if element is None:
            which = "NDHW"[-proof.rank :][axis - 1] if axis else "N"
            return Miss(f"no value of the graph holds the grid's {which}", grid.name or "")
        elements.append(element)
    channels = Element(1)  # not used
    if varying == [0]:
        return Size(None, (Element(1), channels, *elements[1:]), elements[0])
    return Size(None, (elements[0], channels, *elements[1:]))


def _sources(structural: Sequence[ir.Value], data: Sequence[ir.Value], scope: Scope,
             trials: tuple[Evaluator, ...]) -> list[tuple[ir.Value, bool, np.ndarray]]:
    """(value, is it the shape of that value, its integers [trials, elements]), the cheapest to read first."""
    found: dict[tuple[ir.Value, bool], np.ndarray] = {}
    stack, seen = list(reversed(structural)), set()
    while stack:
        value = stack.pop()
        if value in seen or kind(value, scope) is Kind.CONSTANT:
            continue
        seen.add(value)
        node = value.producer()
        if scope.visible(value) and scope.dtype(value) in (ir.DataType.INT64, ir.DataType.INT32):
            _add(found, (value, False), lambda trial, v=value: trial.value(v), trials)
        if node is None:
            continue
        if node.op_type == "Shape" and scope.visible(node.inputs[0]):
            _add(found, (node.inputs[0], True), lambda trial, v=node.inputs[0]: np.array(trial.shape(v)), trials)
        if entry(node) is not None:
            stack.extend(v for v in node.inputs if v is not None)
    for value in data:
        if scope.visible(value) and scope.shape(value) is not None:
            _add(found, (value, True), lambda trial, v=value: np.array(trial.shape(v)), trials)

    def cost(item):
        (value, of_shape), integers = item
        return value.producer() is not None, of_shape, integers.shape[1] > 1

    return [(value, of_shape, integers) for (value, of_shape), integers in sorted(found.items(), key=cost)]


def _add(found, key, read, trials) -> None:
    try:
        rows = [np.ravel(read(trial)) for trial in trials]
    except EvaluationError:
        return
    if all(row.size == rows[0].size for row in rows) and 0 < rows[0].size <= MOST_ELEMENTS:
        found[key] = np.stack(rows)


def _find(extents: tuple[int, ...], sources) -> Element | None:
    for value, of_shape, integers in sources:
        for index in range(integers.shape[1]):
            if np.array_equal(integers[:, index], extents):
                single = not of_shape and integers.shape[1] == 1
                return Element(value=value, index=index, single=single, of_shape=of_shape)
    return None


def _whole(sources, proof: Proven, scope: Scope, covers: Collection[ir.Node]) -> ir.Value | None:
    """An int64 value [rank + 2] that is the size already."""
    shapes = np.array([(shape[0], *shape[1:-1]) for shape in proof.shapes])
    for value, of_shape, integers in sources:
        if of_shape or integers.shape[1] != proof.rank + 2 or scope.dtype(value) != ir.DataType.INT64:
            continue
        batch = integers[:, 0]
        adapts = proof.batch_is_thetas and (np.all(batch == 1) or _is_declared(value, covers))
        if (adapts or np.array_equal(batch, shapes[:, 0])) and np.array_equal(integers[:, 2:], shapes[:, 1:]):
            return value
    return None


def _is_declared(size: ir.Value, covers: Collection[ir.Node]) -> bool:
    """Whether ai.onnx's AffineGrid takes it, which demands that its batch is theta's."""
    return any(use.node in covers and (use.node.op_type, use.idx) == ("AffineGrid", 1) for use in size.uses())
