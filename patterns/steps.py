"""One node as a step of a chain: what it does to the tensor that runs through it, and the shapes that follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import onnx_ir as ir

from patterns.elementwise import ELEMENTWISE
from patterns.reversals import Dim
from patterns.signed_permutation import SignedPermutation
from rewriter.evaluator import Kind, kind
from rewriter.scopes import Scope
from rewriter.vocabulary import Miss


@dataclasses.dataclass(frozen=True)
class Step:
    """What one node (or a Split with its Concat) does to the tensor that runs through it.

    Attributes:
        source, output: the tensor before and behind it.
        nodes: the nodes it consists of, the last one first.
        motion: how it moves the axes; None where it does not.
        factor: the scalar operand of a Mul or Div.
        maps: whether it computes something else, from every element alike.
    """

    source: ir.Value
    output: ir.Value
    nodes: tuple[ir.Node, ...]
    motion: SignedPermutation | None = None
    factor: ir.Value | None = None
    maps: bool = False

    @property
    def computes(self) -> bool:
        return self.maps or self.factor is not None


Reader = Callable[[ir.Node, Scope], "Step | Miss | None"]
EVALUATED = frozenset({"Slice", "Gather", "ReverseSequence"})  # reading these takes evaluations
READERS: dict[str, Reader] = {}  # by op_type of `ai.onnx`; what moves axes adds itself, in movements.py and flips.py


def reader(*op_types: str) -> Callable[[Reader], Reader]:
    """Makes a function the one that reads these operators."""
    def register(function: Reader) -> Reader:
        READERS.update(dict.fromkeys(op_types, function))
        return function
    return register


def read(node: ir.Node, scope: Scope) -> Step | Miss | None:
    """The step a node is; a Miss if it nearly flips an axis; None if it is something else."""
    reader = READERS.get(node.op_type) if node.domain == "" else None
    if reader is None or any(attribute.is_ref() for attribute in node.attributes.values()):
        return None
    if node.op_type not in EVALUATED:
        return reader(node, scope)
    known = scope.memo("steps", dict)  # walks along a chain come by again and again
    inputs = tuple(node.inputs)
    if node not in known or known[node][0] != inputs:
        known[node] = inputs, reader(node, scope)
    return known[node][1]


def step(node: ir.Node, motion: SignedPermutation | None, *others: ir.Node, source: ir.Value | None = None) -> Step:
    still = motion is None or motion.is_identity
    return Step(source or node.inputs[0], node.outputs[0], (node, *others), None if still else motion)


def flip(node: ir.Node, rank: int, axes) -> Step:
    return step(node, SignedPermutation.flip(rank, axes))


def shape_of(value: ir.Value, scope: Scope) -> tuple[Dim, ...] | None:
    """Dims where known: inferred, or else those before the step that made the value, moved as it moves them.

    Inference loses them behind computed bounds and in branches, where a chain that is fused keeps them: what is found
    must not depend on that. Where there is no such step (behind foreign operators) it takes an evaluation.
    """
    known = scope.memo("shapes behind movements", dict)
    path, source = [], value
    while source is not None and source not in known and not scope.anchored(source):
        path.append(source)
        maker = source.producer()
        if maker is None or maker.graph is not scope.graph or maker.domain != "" or maker.op_type not in READERS:
            break
        source = _passed_through(maker, scope)
    for made in reversed(path):
        known[made] = _moved_shape(made, scope)
    return known[value] if value in known else scope.shape(value)


def _passed_through(node: ir.Node, scope: Scope) -> ir.Value | None:
    """The operand that is the source of a node if that is a step."""
    operands = [v for v in node.inputs if v is not None]
    if node.op_type == "Concat" and operands and (split := operands[0].producer()) is not None:
        return split.inputs[0] if split.op_type == "Split" else None
    if node.op_type in ELEMENTWISE:
        operands = [v for v in operands if kind(v, scope) is not Kind.CONSTANT]
    return operands[0] if operands else None


def _moved_shape(value: ir.Value, scope: Scope) -> tuple[Dim, ...] | None:
    """As `shape_of`, of a value that inference does not tell, once that is known for what it is made of."""
    inferred, maker = scope.shape(value), value.producer()
    step = read(maker, scope) if maker is not None and maker.graph is scope.graph else None
    before = shape_of(step.source, scope) if isinstance(step, Step) else None
    if before is None:
        return scope.measured_shape(value) if inferred is None else inferred
    moved = tuple(before[axis] for axis in step.motion.perm) if step.motion else before
    return tuple(b if isinstance(b, int) else a for a, b in zip(moved, inferred or moved))
