"""What moves axes or does nothing, what scales, and what treats every element alike."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from patterns.elementwise import ELEMENTWISE, element_source
from patterns.signed_permutation import SignedPermutation
from patterns.steps import Step, reader, shape_of, step
from rewriter.evaluator import Kind, kind
from rewriter.scopes import Scope


@reader("Identity")
def _identity(node: ir.Node, scope: Scope) -> Step:
    return step(node, None)


@reader("Transpose")
def _transpose(node: ir.Node, scope: Scope) -> Step | None:
    perm = node.attributes.get_ints("perm")
    if perm is None:
        shape = shape_of(node.inputs[0], scope)
        if shape is None:
            return None
        perm = range(len(shape))[::-1]
    return step(node, SignedPermutation(tuple(perm)))


@reader(*ELEMENTWISE - {"Mul", "Div"})
def _elementwise(node: ir.Node, scope: Scope) -> Step | None:
    source = element_source(node, scope)
    return source and Step(source, node.outputs[0], (node,), maps=True)


@reader("Mul", "Div")
def _scalar(node: ir.Node, scope: Scope) -> Step | None:
    """Mul or Div by a constant of one element that does not raise the rank."""
    for data, factor in ((0, 1), (1, 0)) if node.op_type == "Mul" else ((0, 1),):
        data, factor = node.inputs[data], node.inputs[factor]
        if kind(factor, scope) is not Kind.CONSTANT:
            continue
        known = scope.shape(factor)
        if known is not None and any(dim != 1 for dim in known):
            continue
        array = scope.constant(factor)
        if array is None or array.size != 1:
            continue
        shape = shape_of(data, scope) if array.ndim else ()
        if shape is not None and array.ndim <= len(shape):
            return Step(data, node.outputs[0], (node,), None, factor)
    return _elementwise(node, scope)


@reader("Concat")
def _concat(node: ir.Node, scope: Scope) -> Step | None:
    """A Concat that puts the single slices of a Split together again, in reverse."""
    split = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
    if split is None or (split.domain, split.op_type) != ("", "Split") or split.graph is not node.graph:
        return None
    if any(attribute.is_ref() for attribute in split.attributes.values()):
        return None
    pieces = list(split.outputs)
    if len(pieces) < 2 or list(node.inputs) not in (pieces, pieces[::-1]):
        return None
    if any(len(piece.uses()) != 1 or piece.is_graph_output() for piece in pieces):
        return None
    source = split.inputs[0]
    shape = shape_of(source, scope)
    if shape is None:
        return None
    axis = split.attributes.get_int("axis", 0) % len(shape)
    if node.attributes["axis"].as_int() % len(shape) != axis:
        return None
    sizes = split.attributes.get_ints("split")
    if sizes is None and len(split.inputs) > 1 and split.inputs[1] is not None:
        sizes = scope.constant(split.inputs[1])
        if sizes is None:
            return None
    single = shape[axis] == len(pieces) if sizes is None else bool(np.all(np.equal(sizes, 1)))
    forward = list(node.inputs) == pieces
    if not (single or forward):
        return None
    motion = None if forward else SignedPermutation.flip(len(shape), [axis])
    return step(node, motion, split, source=source)
