"""Chains: steps one behind the other that move axes, treat every element alike, or do nothing."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import onnx_ir as ir

import patterns.flips
import patterns.movements  # noqa: F401 both add what they read to patterns.steps
from patterns.elementwise import ELEMENTWISE
from patterns.signed_permutation import SignedPermutation, compose
from patterns.steps import Step, read
from rewriter.graphs import MOST_STEPS, is_dead
from rewriter.scopes import Scope

MOST_SHARED = 16  # steps looked at beyond a value that others need
MOST_MAPS = 24  # steps that compute something else, in one chain: all places to begin are weighed at every end
PASSES = ELEMENTWISE | {"Identity"}
CHAINS = frozenset({"Identity", "Mul", "Div", "Transpose", "Slice", "Gather", "ReverseSequence", "Concat", "Split"})
TAKE_FACTORS = frozenset({"Conv", "MatMul"})  # ONNX Runtime folds a scalar Mul behind these into them


@dataclasses.dataclass(frozen=True)
class Chain:
    """Steps one behind the other, of which the first and the last that do something move axes.

    Attributes:
        steps: in the order of the data.
        lead: a factor right before them; empty where there is none.
    """

    steps: tuple[Step, ...]
    lead: tuple[Step, ...] = ()

    @property
    def motions(self) -> list[SignedPermutation]:
        return [step.motion for step in self.steps if step.motion]

    @property
    def total(self) -> SignedPermutation:
        return compose(self.motions)

    @property
    def sections(self) -> list[list[SignedPermutation]]:
        """The motions between steps that map elements, which keep apart what cannot be one node."""
        found: list[list[SignedPermutation]] = [[]]
        for step in self.steps:
            if step.maps:
                found.append([])
            elif step.motion:
                found[-1].append(step.motion)
        return [section for section in found if section]


def is_lone(node: ir.Node) -> bool:
    """Whether a node can be seen to be no part of a chain: most Transposes and Slices of a model are not."""
    if node.op_type == "Slice":
        return len(node.inputs) < 5  # no steps, hence no flip
    if node.op_type != "Transpose" or any(use.node.op_type in CHAINS for use in node.outputs[0].uses()):
        return False
    value = node.inputs[0]
    for _ in range(MOST_SHARED):
        maker = value.producer()
        if maker is None or maker.op_type not in PASSES:
            return maker is None or maker.op_type not in CHAINS
        made = [v for v in maker.inputs if v is not None and v.producer() is not None
                and v.producer().op_type != "Constant"]
        if len(made) != 1:
            return len(made) == 0
        value = made[0]
    return False


def walk_up(last: Step, scope: Scope, *, over_maps: bool = False) -> tuple[list[Step], int]:
    """The steps that lead to `last`, in order, and the index from which on nothing else needs what is in between.

    What computes something else than a multiple ends them, unless `over_maps`.
    """
    steps, own, maps = [last], None, 0
    rank = len(last.motion.perm) if last.motion else None
    while own is None or len(steps) < own + MOST_SHARED:
        scope.facts.budget.step()
        value = steps[-1].source
        maker = value.producer()
        step = read(maker, scope) if maker is not None and maker.graph is last.nodes[0].graph else None
        if not isinstance(step, Step) or (step.maps and not over_maps):
            break
        if step.motion:
            if rank not in (None, len(step.motion.perm)):  # the model contradicts itself
                break
            rank = len(step.motion.perm)
        if own is None and only_user(value, scope) is None:
            own = len(steps)
        steps.append(step)
        maps += step.maps
        if maps == MOST_MAPS:
            break
    return steps[::-1], len(steps) - (own or len(steps))


def from_first_motion(steps: Sequence[Step]) -> Chain:
    """The chain among steps of which one at least moves axes."""
    first = next(i for i, step in enumerate(steps) if step.motion)
    begin = next((i + 1 for i in range(first)[::-1] if steps[i].computes), 0)
    scaled = begin > 0 and steps[begin - 1].factor is not None
    return Chain(tuple(steps[begin:]), (steps[begin - 1],) if scaled else ())


def only_user(value: ir.Value, scope: Scope) -> ir.Node | None:
    """The one node that needs a value, if there is just one and the value is no output.

    A Shape of it does not count if that only serves the rest of the chain (the lengths of a ReverseSequence).
    """
    users = [use.node for use in value.uses()]
    if len(users) > 1:
        users = [user for user in users if not is_dead(user)]
        shapes = [user for user in users if user.op_type == "Shape"]
        users = [user for user in users if user.op_type != "Shape"]
        if shapes and len(users) == 1:
            chain = set(itertools.islice(_nodes_from(users[0], scope), MOST_STEPS))
            users += [user for user in shapes if not _serves(user, chain)]
    return users[0] if len(users) == 1 and not value.is_graph_output() else None


def _nodes_from(node: ir.Node, scope: Scope) -> Iterator[ir.Node]:
    """The nodes of the chain that goes on with `node`."""
    while isinstance(step := read(node, scope), Step):
        scope.facts.budget.step()
        yield from step.nodes
        users = [use.node for use in step.output.uses() if use.node.op_type != "Shape"]
        if len(users) != 1:
            return
        node = users[0]


def _serves(node: ir.Node, chain: set[ir.Node]) -> bool:
    """Whether all that is made of a node's outputs goes into a chain."""
    stack, seen = [node], set(chain)
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        if len(seen) > len(chain) + MOST_STEPS or any(value.is_graph_output() for value in current.outputs):
            return False
        seen.add(current)
        stack.extend(use.node for value in current.outputs for use in value.uses())
    return True


def steps_down(value: ir.Value, scope: Scope) -> Iterator[Step]:
    """The steps behind a value, as long as each is all that needs the one before."""
    graph = value.graph
    while (user := only_user(value, scope)) is not None and user.graph is graph:
        if user.op_type == "Split":
            user = next((use.node for piece in user.outputs for use in piece.uses()), user)
        scope.facts.budget.step()
        step = read(user, scope)
        if not isinstance(step, Step) or step.maps or step.source is not value:
            return
        yield step
        value = step.output


def still(last: Step, scope: Scope) -> list[Step]:
    """The steps behind a chain that do nothing."""
    return list(itertools.takewhile(lambda step: step.factor is None, steps_down(last.output, scope)))


def moves_on(value: ir.Value, scope: Scope) -> bool:
    """Whether a later step of the same chain moves axes: the chain is then looked at from there."""
    return any(step.motion for step in steps_down(value, scope))


def lead(chain: Chain) -> tuple[Step, ...]:
    """The factor right before a chain, unless what is above takes it in for nothing."""
    maker = chain.lead[0].source.producer() if chain.lead else None
    return () if maker is not None and maker.op_type in TAKE_FACTORS else chain.lead


def tail(last: Step, scope: Scope) -> tuple[Step, ...]:
    """The factor right behind a chain, unless what follows takes it in for nothing."""
    step = next(steps_down(last.output, scope), None)
    if step is None or step.factor is None:
        return ()
    user = only_user(step.output, scope)
    return () if user is not None and user.op_type == "MatMul" else (step,)
