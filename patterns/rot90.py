"""Flips and transposes that turn a tensor become `custom.ops::Rot90`, with a scalar beside them `CustomRotScale`.

What it finds
    The longest chain of Transposes and flips (Slice with step -1, Gather with reversed indices, ReverseSequence over
    full lengths, Split with its pieces concatenated in reverse), Identity and scalar Mul or Div in between, whose
    product is a rotation by quarter turns in the plane of two axes. Any rank, any dtype, static or dynamic shape. Also
    over Cast, Relu, Clip and other exact elementwise nodes, where that makes fewer passes.
Why
    A flip of the innermost axis copies element by element, and a chain passes over the tensor once for each node. The
    fallback turns with one Transpose and one flip of an outer axis; a kernel does it in one pass.
Before -> after
    Slice(x, axis 3 reversed), Transpose(0, 1, 3, 2)      ->  Rot90(x)             k = 1, axes = (2, 3)
    Slice(x, axes 2 and 3 reversed), Mul(1.5)             ->  CustomRotScale(x)    rotations = 2, scale_factor = 1.5
    a rotation and NHWC <-> NCHW                          ->  Rot90 and one Transpose
    an anti-transpose                                     ->  Rot90 and a flip of the outer axis
    turned and turned back                                ->  nothing; what is left of other chains, if it is cheaper
    turned, Relu, Cast, turned back                       ->  Relu, Cast
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
import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx_ir as ir

from patterns.chains import Chain, from_first_motion, is_lone, lead, moves_on, still, tail, walk_up
from patterns.operators.rot90 import CUSTOM_ROT_SCALE, ROT90, dims_of
from patterns.operators.rot90_bodies import BEGIN, swapped
from patterns.signed_permutation import SignedPermutation, compose, holds_rotation
from patterns.steps import Step, read, shape_of
from rewriter.builder import Builder
from rewriter.evaluator import Kind, kind
from rewriter.scopes import Scope
from rewriter.slices import FLOATS
from rewriter.vocabulary import DOMAIN, Match, Miss

MOVABLE = frozenset({ir.DataType.BOOL, ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE, *(
    ir.DataType[f"{sign}INT{bits}"] for sign in ("", "U") for bits in (8, 16, 32, 64))})  # which Slice takes
BFLOAT16_OPSET = 13  # from which it takes that too
SMALL = 1 << 16  # bytes that another pass moves in a few microseconds
FEW = 8  # channels from which on moving them as a block is faster
SLICE_OPSET = 10  # from which flips are written with inputs
TURNS = {1: "a quarter turn", 2: "a half turn", 3: "three quarter turns"}


@dataclasses.dataclass(frozen=True)
class Rot90Pattern:
    """
    Attributes:
        kernels: whether the model is for our kernels, which turn in one pass: what costs a runtime's own operators
            another pass over a large tensor then pays too.
    """

    kernels: bool = False

    name = "rot90"
    anchors = frozenset({"Transpose", "Slice", "Gather", "ReverseSequence", "Concat"})
    operators = (ROT90, CUSTOM_ROT_SCALE)
    needs = ()

    def match(self, node: ir.Node, scope: Scope) -> Match | Miss | None:
        if is_lone(node):
            return None
        last = read(node, scope)
        if isinstance(last, Miss):
            return last if _is_part_of_turn(node, scope) else None
        if last is None or last.motion is None or moves_on(last.output, scope):
            return None
        steps, own = walk_up(last, scope)
        steps += still(last, scope)
        chain, whole = from_first_motion(steps[own:]), from_first_motion(steps)
        source, total = chain.steps[0].source, chain.total
        if total.rank < 2:
            return None
        if _is_folded(whole.steps[0].source, scope):
            return _of_constant(whole, scope)
        longer = _longer(chain, whole)
        for candidate in (chain, *longer):
            if candidate.total.is_identity and holds_rotation(candidate.motions):
                return _match(candidate, (), scope)
        if over := _over_maps(last, scope):
            return over
        if parts := _turned(chain, scope):
            return _match(chain, parts, scope)
        across = next((c for c in longer if c.total.rotation()), None)
        if across and (self.kernels or _is_small(across.steps[0].source, scope)):
            return _match(across, (across.total,), scope)
        if parts := _reduced(chain):
            return _match(chain, parts, scope)
        if across:
            return Miss("a rotation, but others need the value half way, and turning from before it would take another "
                        "pass over the tensor", source.name or "")
        maker = source.producer()
        above = read(maker, scope) if maker is not None and maker.graph is node.graph else None
        if isinstance(above, Miss):
            return above
        if len(total.flips) > 2 or (len(chain.motions) > 1 and total.flips and total.moved):
            return Miss(f"no rotation in one plane: {total}", last.output.name or "")
        return None


def _is_folded(value: ir.Value, scope: Scope) -> bool:
    """Constants and size arithmetic: runtimes compute these ahead of time."""
    return scope.structural(value) and not value.is_graph_input()


def _of_constant(chain: Chain, scope: Scope) -> Miss | None:
    source = chain.steps[0].source
    if not chain.total.rotation() or kind(source, scope) is not Kind.CONSTANT:
        return None
    return Miss("a rotation of a constant: runtimes compute it ahead of time, and it is no smaller as a node of its "
                "own", source.name or "")


def _is_part_of_turn(node: ir.Node, scope: Scope) -> bool:
    """Whether a flip that failed would have made a rotation: of two axes, or behind another motion."""
    maker = node.inputs[0].producer()
    before = read(maker, scope) if maker is not None else None
    if isinstance(before, Step) and before.motion:
        return True
    steps = scope.constant(node.inputs[4]) if node.op_type == "Slice" and len(node.inputs) > 4 else None
    return steps is not None and (steps < 0).sum() > 1


def _turned(chain: Chain, scope: Scope) -> tuple[SignedPermutation, ...]:
    """A rotation, or one and a change of layout, in the order to write them; empty if it is neither."""
    total = chain.total
    if total.rotation():
        return (total,)
    found = total.rotation_and_layout()
    if found is None:
        return ()
    turn, layout = found
    k, plane = turn.rotation()
    if k == 2:
        dims, channels_last = shape_of(chain.steps[0].source, scope), total.rank - 1 not in plane
        channels = dims[-1 if channels_last else plane[0] - 1] if dims else None
        # reversing axes in front of the channels moves them as blocks, which pays unless they are few
        turn_first = (channels >= FEW) == channels_last if isinstance(channels, int) else not chain.motions[0].moved
    else:
        turn_first = k == 3  # the two Transposes must meet
    return (turn, layout) if turn_first else (layout, layout.inverse().then(turn).then(layout))


def _reduced(chain: Chain) -> tuple[SignedPermutation, ...]:
    """The best form of a chain that holds a rotation but is none, if it is cheaper than what is there."""
    total, motions = chain.total, chain.motions
    parts = total.spelled()
    if not holds_rotation(motions) or sum(part.cost for part in parts) >= sum(motion.cost for motion in motions):
        return ()
    if found := total.rotation_and_flip():
        return found
    cancelled = sum(len(motion.flips) for motion in motions) > len(total.flips)
    return parts if cancelled and len(parts) == 1 else ()


def _over_maps(last: Step, scope: Scope) -> Match | Miss | None:
    """The longest chain that also passes over elementwise nodes, if that is cheaper than its sections on their own."""
    steps, own = walk_up(last, scope, over_maps=True)
    steps = steps[own:]
    maps = [i for i, step in enumerate(steps) if step.maps]
    if not any(step.motion.flips for step in steps if step.motion):
        return None  # Transposes alone make no rotation
    for begin in (0, *(i + 1 for i in maps[:-1])):
        chain = from_first_motion(steps[begin:])
        sections = chain.sections
        if len(sections) < 2 or _is_folded(chain.steps[0].source, scope):
            continue
        cancels = chain.total.is_identity and holds_rotation(chain.motions)
        parts = () if cancels else _turned(chain, scope) or _reduced(chain)
        alone = sum(_cost(compose(section)) for section in sections)
        if (cancels or parts) and sum(map(_cost, parts)) < alone:
            return _match(chain, parts, scope)
    return None


def _cost(motion: SignedPermutation) -> int:
    """Of the best spelling."""
    return sum(part.cost for part in motion.spelled())


def _longer(chain: Chain, whole: Chain) -> list[Chain]:
    """Chains with the same end that begin before a value which others need, shortest first."""
    found = []
    for i in range(len(whole.steps) - len(chain.steps))[::-1]:
        maker = whole.steps[i].source.producer()
        if whole.steps[i].computes or (maker is not None and maker.domain == DOMAIN):
            break  # a product would be made twice; what stands behind a rotation of ours was weighed with it
        if whole.steps[i].motion:
            found.append(Chain(whole.steps[i:]))
    return found


def _is_small(value: ir.Value, scope: Scope) -> bool:
    """Whether another pass over a tensor takes no time to speak of."""
    shape, dtype = shape_of(value, scope), scope.dtype(value)
    static = shape is not None and all(isinstance(dim, int) for dim in shape)
    return static and dtype is not None and math.prod(shape) * dtype.itemsize <= SMALL


def _match(chain: Chain, parts: Sequence[SignedPermutation], scope: Scope) -> Match | Miss:
    """The replacement of a chain by these parts, with a factor taken in where one fits."""
    last = chain.steps[-1]
    turns = any(part.rotation() for part in parts)
    if parts and not turns and scope.opset < SLICE_OPSET:
        return Miss(f"flips that cancel, but opset {scope.opset} writes them in another way", last.output.name or "")
    dtypes = _dtypes(chain, scope)
    mapped = any(step.maps for step in chain.steps)
    known = [dtype for dtype in dtypes if dtype is not None]
    if (turns and not known) or (mapped and len(known) < len(dtypes)):
        return Miss("the dtype of what is turned is unknown", last.output.name or "")
    if mapped:
        before, absorbed, behind, scale = (), None, (), None
    else:
        before, absorbed, behind, scale = _absorbed(chain, known[0], scope) if turns else ((), None, (), None)
    steps = [*before, *chain.steps, *behind]
    computing = [step for step in steps if step.computes]
    if mapped:  # the fewest bytes are moved
        at = min(range(len(dtypes)), key=lambda i: _width(dtypes[i], scope.opset))
        if _width(dtypes[at], scope.opset) == math.inf:
            return Miss(f"a Slice of {dtypes[at]} is not in opset {scope.opset}", last.output.name or "")
    else:
        at = computing.index(absorbed) if absorbed else 0
        dtypes = [next(iter(known), None)] * (len(computing) + 1)
    source = steps[0].source

    def build(builder: Builder) -> ir.Value:
        value, shape = source, scope.declared_shape(source)
        for step, dtype in zip(computing[:at], dtypes[1:]):
            value = _again(builder, step, value, dtype, shape)
        for part in parts:
            shape = shape and ir.Shape([shape[axis] for axis in part.perm])
            value = _moved(builder, part, value, dtypes[at], shape, scale)
        for step, dtype in list(zip(computing, dtypes[1:]))[at + (absorbed is not None):]:
            value = _again(builder, step, value, dtype, shape)
        return value

    operator = None if not turns else ROT90.name if scale is None else CUSTOM_ROT_SCALE.name
    covers = [node for step in steps for node in step.nodes]
    return Match(steps[-1].output, build, covers, operator, _note(parts, scale, steps, computing))


def _dtypes(chain: Chain, scope: Scope) -> list[ir.DataType | None]:
    """Of what runs through a chain: before the first step that computes, and behind each."""
    runs = [[chain.steps[0].source]]
    for step in chain.steps:
        if step.computes:
            runs.append([])
        runs[-1].append(step.output)
    return [next((dtype for value in run if (dtype := scope.dtype(value)) is not None), None) for run in runs]


def _width(dtype: ir.DataType, opset: int) -> float:
    """Bytes of an element; infinite where Slice and Transpose do not take it, or it has no width."""
    movable = dtype in MOVABLE or (dtype == ir.DataType.BFLOAT16 and opset >= BFLOAT16_OPSET)
    return dtype.itemsize if movable else math.inf


def _absorbed(chain: Chain, dtype: ir.DataType, scope: Scope):
    """(steps before, the factor that becomes the operator's own, steps behind, its number) of a rotation."""
    before, behind = lead(chain), tail(chain.steps[-1], scope)
    options = [((), step, ()) for step in chain.steps if step.factor is not None]
    options += [((), behind[0], behind)] if behind else []
    options += [(before, before[0], ())] if before else []
    exact = ((*option, number) for option in options
             if (number := _exact_factor(option[1], dtype, scope)) is not None)
    return next(exact, ((), None, (), None))


def _note(parts: Sequence[SignedPermutation], scale: float | None, steps: Sequence[Step], computing) -> str:
    words = [f"{TURNS[found[0]]} in the plane of axes {found[1][0]} and {found[1][1]}" if (found := part.rotation())
             else str(part) for part in parts] or ["movements that cancel"]
    if scale is not None:
        words.append(f"times {scale:g}")
    elif computing:
        stay = ", ".join(step.nodes[0].op_type for step in computing[:3]) + ", ..." * (len(computing) > 3)
        words.append(f"{stay} stay{'s' * (len(computing) == 1)}")
    return f"{', '.join(words)}, from {len(steps)} node{'s' * (len(steps) > 1)}"


def _exact_factor(step: Step, dtype: ir.DataType, scope: Scope) -> float | None:
    """The number a Mul or Div multiplies by, if a float32 attribute rounded to dtype gives the same products."""
    if dtype not in FLOATS:
        return None
    number = float(scope.constant(step.factor).astype(np.float64).item())
    if step.nodes[0].op_type == "Div":
        if not np.isfinite(number) or abs(np.frexp(number)[0]) != 0.5:
            return None
        number = 1 / number
    kind = dtype.numpy()
    normal = number == 0 or abs(number) >= float(max(ml_dtypes.finfo(kind).tiny, np.finfo(np.float32).tiny))
    with np.errstate(over="ignore"):  # infinity is not equal to it
        exact = all(float(np.float64(number).astype(t)) == number for t in (kind, np.float32))
    return number if np.isfinite(number) and normal and exact else None


def _again(builder: Builder, step: Step, value: ir.Value, dtype, shape) -> ir.Value:
    """A step that computes, on a value that lies otherwise."""
    node = step.nodes[0]
    operands = [value if operand is step.source else operand for operand in node.inputs]
    return builder.op(node.op_type, operands, dtype=dtype, shape=shape, **node.attributes)


def _moved(builder: Builder, part: SignedPermutation, value: ir.Value, dtype, shape, scale: float | None) -> ir.Value:
    found, rank = part.rotation(), part.rank
    if found is None:
        if part.moved:
            return builder.op("Transpose", [value], dtype=dtype, shape=shape, perm=list(part.perm))
        axes = np.array(sorted(part.flips), np.int64)
        back = builder.constant(np.full_like(axes, -1), "back")
        begin = builder.constant(np.full_like(axes, BEGIN), "begin")
        operands = [value, back, begin, builder.constant(axes, "axes"), back]
        return builder.op("Slice", operands, dtype=dtype, shape=shape)
    turn, plane = found
    helper = {"perm": swapped(plane, rank)}
    if scale is None:
        return builder.custom("Rot90", [value], dtype=dtype, shape=shape, k=turn, axes=list(plane), **helper)
    return builder.custom("CustomRotScale", [value], dtype=dtype, shape=shape, rotations=turn, scale_factor=scale,
                          dims=dims_of(plane, rank), **helper)
