"""The words patterns and the engine share: Operator, Pattern, Match, Miss.

A pattern looks at one anchor node and answers with a `Match` (what to put in place of which value), a `Miss`
(it came close; the reason is shown to the user) or None (nothing of its kind is here). Only a stated Miss is a
decline: any exception that leaves a pattern is a bug and is reported as one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import onnx
import onnx_ir as ir

if TYPE_CHECKING:
    from rewriter.builder import Builder
    from rewriter.scopes import Scope

DOMAIN = "custom.ops"
DOMAIN_VERSION = 1
LOWEST_OPSET = 11
PATTERN_KEY = "onnx_warpfuse.pattern"  # metadata of a node that a pattern made: its name


@dataclasses.dataclass(frozen=True)
class Operator:
    """One operator of the domain `custom.ops`: its contract, and how its fallback body is generated.

    Attributes:
        name: op_type.
        signature: the call in one line, e.g. "AffineGrid(theta, size) -> grid".
        summary: one sentence.
        inputs, outputs: (name, text) in order.
        attributes: (name, text), defaults included in the text.
        edge_cases: sentences that fix what happens where the summary leaves room.
        since: lowest `ai.onnx` opset whose operators can express the body.
        define: (uses, opset) -> FunctionProto. `uses` are all nodes of this operator in the model; the body is
            generated for them (which ranks, dtypes, modes occur), and helper attributes it needs are written on them.
            Deterministic in its arguments. The FunctionProto imports `ai.onnx` at exactly `opset`.
        reference: the operator in numpy, computing in float64, for tests: arrays then attributes as keywords.
    """

    name: str
    signature: str
    summary: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    attributes: tuple[tuple[str, str], ...]
    edge_cases: tuple[str, ...]
    since: int
    define: Callable[[Sequence[ir.Node], int], onnx.FunctionProto]
    reference: Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Match:
    """A proven replacement of one value.

    Attributes:
        root: the value that is replaced; its name survives on the new producer.
        build: makes the new nodes with the Builder it is given and returns the value that takes root's place.
        covers: the nodes the new ones stand for. Those that nothing else needs are removed; all lend their metadata.
        operator: what it becomes ("Rot90"), or None where a chain simply vanishes.
        note: what was found, in a model author's words.
        shapes: values whose declared shapes hold no longer once this is done, and the shapes that they have then.
    """

    root: ir.Value
    build: Callable[[Builder], ir.Value]
    covers: Collection[ir.Node]
    operator: str | None
    note: str = ""
    shapes: Mapping[ir.Value, ir.Shape] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Miss:
    """A near miss: what was recognised, and why it is left alone.

    Attributes:
        reason: one line, with the figure that failed where there is one.
        tensor: the value at fault (its name in the model).
    """

    reason: str
    tensor: str = ""


class Pattern(Protocol):
    """What is found and what replaces it. Stateless: one instance serves every model.

    Attributes:
        name: as selected by `--patterns`.
        anchors: op_types of `ai.onnx`, or "domain::op_type", at which `match` is called, last node of a scope first.
        operators: what it emits.
        needs: names of patterns that must run before it.
    """

    # properties: whether they can be set is a pattern's own business
    @property
    def name(self) -> str: ...

    @property
    def anchors(self) -> frozenset[str]: ...

    @property
    def operators(self) -> tuple[Operator, ...]: ...

    @property
    def needs(self) -> tuple[str, ...]: ...

    def match(self, node: ir.Node, scope: Scope) -> Match | Miss | None: ...
