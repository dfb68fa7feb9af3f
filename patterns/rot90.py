"""Flips and transposes that turn a tensor become `custom.ops::Rot90`, with a scalar beside them `CustomRotScale`.

What it finds
    The longest chain of Transposes and flips (Slice with step -1, Gather with reversed indices, ReverseSequence over
    full lengths, Split with its pieces concatenated in reverse), Identity and scalar Mul or Div in between, whose
    product is a rotation by quarter turns in the plane of two axes. Any rank, any dtype, static or dynamic shape.
Why
    A flip of the innermost axis copies element by element, and a chain passes over the tensor once for each node. The
    fallback turns with one Transpose and one flip of an outer axis; a kernel does it in one pass.
Before -> after
    Slice(x, axis 3 reversed), Transpose(0, 1, 3, 2)      ->  Rot90(x)             k = 1, axes = (2, 3)
    Slice(x, axes 2 and 3 reversed), Mul(1.5)             ->  CustomRotScale(x)    rotations = 2, scale_factor = 1.5
    a rotation and NHWC <-> NCHW                          ->  Rot90 and one Transpose
    an anti-transpose                                     ->  Rot90 and a flip of the outer axis
    turned and turned back                                ->  nothing; what is left of other chains, if it is cheaper
When it declines
    Part of an axis reversed, or not provably all of it for every size; a flip alone, a transpose alone, three axes
    flipped; a value inside that others need, if turning from before it costs another pass over a large tensor;
    constants (runtimes fold them). A factor stays outside as the Mul or Div it is if it is no scalar, no float, not
    exact in float32 (a divisor: no power of two), or if a Conv or MatMul beside it takes it in for nothing.
Opsets and runtimes
    Opset 11 and newer (Slice has steps from 10 on); any runtime with model-local functions, or the kernels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from patterns.movements import Step, read
from patterns.operators.rot90 import CUSTOM_ROT_SCALE, ROT90, dims_of
from patterns.operators.rot90_bodies import NONE, swapped
from patterns.signed_permutation import SignedPermutation, compose, holds_rotation
from rewriter.builder import Builder
from rewriter.scopes import Scope, is_dead
from rewriter.vocabulary import Match, Miss

FLOATS = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE})
SMALL = 1 << 16  # bytes that another pass moves in a few microseconds
MOST_SHARED = 16  # steps looked at beyond a value that others need
SLICE_OPSET = 10  # from which flips are written with inputs


@dataclasses.dataclass(frozen=True)
class Chain:
    """Steps one behind the other, from the first that moves axes to the last.

    Attributes:
        steps: in the order of the data.
        lead: a factor right before them, with what lies between; empty where there is none.
    """

    steps: tuple[Step, ...]
    lead: tuple[Step, ...] = ()

    @property
    def motions(self) -> list[SignedPermutation]:
        return [step.motion for step in self.steps if step.motion]

    @property
    def total(self) -> SignedPermutation:
        return compose(self.motions)


class Rot90Pattern:
    name = "rot90"
    anchors = frozenset({"Transpose", "Slice", "Gather", "ReverseSequence", "Concat"})
    operators = (ROT90, CUSTOM_ROT_SCALE)
    needs = ()

    def match(self, node: ir.Node, scope: Scope) -> Match | Miss | None:
        last = read(node, scope)
        if isinstance(last, Miss):
            return last if _is_part_of_turn(node, scope) else None
        if last is None or last.motion is None or _moves_on(last.output, scope):
            return None
        steps, own = _walk_up(last, scope)
        chain, whole = _from_first_motion(steps[own:]), _from_first_motion(steps)
        source, total = chain.steps[0].source, chain.total
        if total.rank < 2 or _is_folded(whole.steps[0].source, scope):
            return None
        if parts := _best(chain):
            return _match(chain, parts, scope)
        if total.is_identity and holds_rotation(chain.motions):
            return _match(chain, (), scope)
        if whole.steps != chain.steps and (answer := _across(whole, chain, scope)):
            return answer
        maker = source.producer()
        above = read(maker, scope) if maker is not None and maker.graph is node.graph else None
        if isinstance(above, Miss):
            return above
        if len(total.flips) > 2 or (len(chain.motions) > 1 and total.flips and total.moved):
            return Miss(f"no rotation in one plane: {total}", last.output.name or "")
        return None


def _walk_up(last: Step, scope: Scope) -> tuple[list[Step], int]:
    """The steps that lead to `last`, in order, and the index from which on nothing else needs what is in between."""
    steps, own = [last], None
    while own is None or len(steps) < own + MOST_SHARED:
        value = steps[-1].source
        maker = value.producer()
        step = read(maker, scope) if maker is not None and maker.graph is last.nodes[0].graph else None
        if not isinstance(step, Step):
            break
        if own is None and _only_user(value) is None:
            own = len(steps)
        steps.append(step)
    return steps[::-1], len(steps) - (own or len(steps))


def _from_first_motion(steps: Sequence[Step]) -> Chain:
    first = next(i for i, step in enumerate(steps) if step.motion)
    factor = next((i for i in range(first)[::-1] if steps[i].factor is not None), first)
    return Chain(tuple(steps[first:]), tuple(steps[factor:first]))


def _only_user(value: ir.Value) -> ir.Node | None:
    """The one node that needs a value, if there is just one and the value is no output."""
    users = [use.node for use in value.uses()]
    if len(users) > 1:
        users = [user for user in users if not is_dead(user)]
    return users[0] if len(users) == 1 and not value.is_graph_output() else None


def _steps_down(value: ir.Value, scope: Scope):
    """The steps behind a value, as long as each is all that needs the one before."""
    graph = value.graph
    while (user := _only_user(value)) is not None and user.graph is graph:
        if user.op_type == "Split":
            user = next((use.node for piece in user.outputs for use in piece.uses()), user)
        step = read(user, scope)
        if not isinstance(step, Step) or step.source is not value:
            return
        yield step
        value = step.output


def _moves_on(value: ir.Value, scope: Scope) -> bool:
    """Whether a later step of the same chain moves axes: the chain is then looked at from there."""
    return any(step.motion for step in _steps_down(value, scope))


def _is_folded(value: ir.Value, scope: Scope) -> bool:
    """Constants and size arithmetic: runtimes compute these ahead of time."""
    return scope.structural(value) and not value.is_graph_input()


def _is_part_of_turn(node: ir.Node, scope: Scope) -> bool:
    """Whether a flip that failed would have made a rotation: of two axes, or behind another motion."""
    maker = node.inputs[0].producer()
    before = read(maker, scope) if maker is not None else None
    if isinstance(before, Step) and before.motion:
        return True
    steps = scope.constant(node.inputs[4]) if node.op_type == "Slice" and len(node.inputs) > 4 else None
    return steps is not None and (steps < 0).sum() > 1


def _best(chain: Chain) -> tuple[SignedPermutation, ...]:
    """What to write in place of a chain, part by part; empty where nothing is better than what is there."""
    total, motions = chain.total, chain.motions
    if total.rotation():
        return (total,)
    if found := total.rotation_and_layout():
        turn, layout = found
        k, plane = turn.rotation()
        # the two Transposes must meet, and a half turn should not reverse the last axis
        if k == 3 or (k == 2 and total.rank - 1 not in plane):
            return turn, layout
        return layout, layout.inverse().then(turn).then(layout)
    if not holds_rotation(motions):
        return ()
    before = sum(motion.cost for motion in motions)
    if (found := total.rotation_and_flip()) and total.cost < before:
        return found
    parts = total.spelled()
    cancelled = sum(len(motion.flips) for motion in motions) > len(total.flips)
    return parts if cancelled and len(parts) <= len(motions) and total.cost < before else ()


def _across(whole: Chain, chain: Chain, scope: Scope) -> Match | Miss | None:
    """A longer chain through a value that others need too: worth it where nothing is left to do, or little."""
    for i, step in enumerate(whole.steps[:-len(chain.steps)]):
        longer = Chain(whole.steps[i:])
        if not step.motion or not holds_rotation(longer.motions):
            continue
        if longer.total.is_identity:
            return _match(longer, (), scope)
        if longer.total.rotation() is None:
            continue
        shape, dtype = scope.shape(step.source), scope.dtype(step.source)
        if dtype is not None and scope.static(step.source) and int(np.prod(shape)) * dtype.itemsize <= SMALL:
            return _match(longer, (longer.total,), scope)
        return Miss("a rotation, but others need the value half way, and turning from before it would take another "
                    "pass over the tensor", chain.steps[0].source.name or "")
    return None


def _match(chain: Chain, parts: Sequence[SignedPermutation], scope: Scope) -> Match | Miss:
    first, last = chain.steps[0], chain.steps[-1]
    dtype = scope.dtype(last.output) or scope.dtype(first.source)
    turns = any(part.rotation() for part in parts)
    if dtype is None and turns:
        return Miss("the dtype of what is turned is unknown", last.output.name or "")
    if not turns and parts and scope.opset < SLICE_OPSET:
        return Miss(f"flips that cancel, in a form that opset {scope.opset} has no words for", last.output.name or "")
    inner = [step for step in chain.steps if step.factor is not None]
    tail = _tail(last, scope)
    lead = () if chain.lead and _takes_factors(chain.lead[0].source.producer()) else chain.lead
    scale, covers, factors = None, list(chain.steps), inner
    for step, more, among in ((*((step, (), inner) for step in inner)),
                              *(((tail[-1], tail, [*inner, tail[-1]]),) if tail else ()),
                              *(((lead[0], lead, [lead[0], *inner]),) if lead else ())) if turns else ():
        scale = _exact_factor(step, dtype, scope)
        if scale is not None:
            covers, factors = [*covers, *more], among
            break
