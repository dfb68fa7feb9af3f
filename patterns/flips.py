"""What reverses axes: Slice, Gather and ReverseSequence, their indices constant or computed from sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from patterns.reversals import FAR, Bounds, Dim, fault, is_affine
from patterns.steps import Step, flip, reader, shape_of, step
from rewriter.evaluator import EvaluationError, Kind, kind
from rewriter.scopes import Scope
from rewriter.vocabulary import Miss


@reader("Slice")
def _slice(node: ir.Node, scope: Scope) -> Step | Miss | None:
    source, output = node.inputs[0], node.outputs[0]
    samples = list(_slice_samples(node, scope))
    if not samples or isinstance(samples[0], Miss):
        return samples[0] if samples else None
    if any(np.ndim(operand) != 1 or np.shape(operand) != np.shape(samples[0][2])
           for sample in samples for operand in sample[:4]):
        return None
    _, _, axes, steps, _ = samples[0]
    shape = shape_of(source, scope) if (steps < 0).any() or (axes < 0).any() else scope.shape(source)
    if shape is not None and not all(-len(shape) <= axis < len(shape) for axis in axes):
        return None
    flips, faults = [], []
    for k, axis in enumerate(axes):
        if axis < 0 and shape is None:
            return None
        axis = int(axis) + (len(shape) if axis < 0 else 0)
        bounds = [Bounds(int(starts[k]), int(ends[k]), "?" if dims is None else dims[axis])
                  for starts, ends, _, _, dims in samples]
        if steps[k] == 1:
            if not all(bound.take_all() for bound in bounds):
                faults.append(f"the Slice also crops axis {axis}")
        elif steps[k] != -1:
            faults.append(f"the Slice has step {steps[k]} on axis {axis}")
            flips.append(axis)
        elif axis in flips:
            faults.append(f"the Slice names axis {axis} twice")
        else:
            flips.append(axis)
            static = shape is not None and isinstance(shape[axis], int)
            faults += [f"the Slice {found}" for found in [fault(bounds, axis, static)] if found]
    if not flips:
        return None if faults else step(node, None)
    if faults:
        return Miss(faults[0], output.name or "")
    return None if shape is None else flip(node, len(shape), flips)


def _slice_samples(node: ir.Node, scope: Scope) -> Iterator[tuple | Miss]:
    """(starts, ends, axes, steps, dims): once where they are constants, else under every trial of sizes."""
    source = node.inputs[0]
    if "starts" in node.attributes:  # until opset 9
        starts, ends = (np.array(node.attributes.get_ints(name)) for name in ("starts", "ends"))
        axes = np.array(node.attributes.get_ints("axes", range(len(starts))))
        yield starts, ends, axes, np.ones_like(starts), scope.shape(source)
        return
    bounds = node.inputs[1:3]
    axes, steps = [*node.inputs[3:], None, None][:2]
    starts, ends = (scope.constant(value) for value in bounds)
    if steps is None or ((strides := scope.constant(steps)) is not None and (strides > 0).all()):
        if starts is None or ends is None or starts.any() or (ends < FAR).any():
            return  # a crop; where an end is the very length, finding out is not worth inferring shapes
        strides = np.ones(len(starts), np.int64)
    if strides is None:
        yield Miss("the steps of the Slice are not constant", steps.name or "")
        return
    axes = np.arange(len(strides)) if axes is None else scope.constant(axes)
    if axes is None:
        yield Miss("the axes of the Slice are not constant", node.inputs[3].name or "")
    elif starts is not None and ends is not None:
        yield starts, ends, axes, strides, shape_of(source, scope) if (strides < 0).any() else scope.shape(source)
    elif (doubt := _doubt(bounds, source, scope)) is not None:
        yield Miss(f"the bounds of the Slice {doubt}", node.outputs[0].name or "")
    else:
        try:
            for (starts, ends), dims in _tried(bounds, source, scope):
                yield starts, ends, axes, strides, dims
        except EvaluationError:
            return


@reader("Gather")
def _gather(node: ir.Node, scope: Scope) -> Step | Miss | None:
    source, index = node.inputs
    known = scope.shape(index)
    if known is not None and len(known) != 1:
        return None
    array = scope.constant(index)
    if array is None and not scope.structural(index):
        return None
    if array is not None and (array.ndim != 1 or not (np.diff(array) < 0).any()) and not _counts_up(array):
        return None
    shape = shape_of(source, scope)
    if shape is None or len(shape) < 2:
        return None
    axis = node.attributes.get_int("axis", 0) % len(shape)
    if array is not None:
        pairs = [(array, shape[axis])]
    else:
        try:
            pairs = [(indices, dims[axis]) for (indices,), dims in _tried([index], source, scope)]
        except EvaluationError:
            return None
        doubt = _doubt([index], source, scope)
        if doubt is None and not _shown(shape, [axis], [{axis: dim} for _, dim in pairs]):
            doubt = f"do not depend on the length of axis {axis}"
        if doubt is not None:
            return Miss(f"the indices of the Gather {doubt}", node.outputs[0].name or "") if all(
                _is_order(indices, np.arange(dim)[::-1]) for indices, dim in pairs) else None
    sized = all(isinstance(dim, int) for _, dim in pairs)
    if sized and all(_is_order(indices, np.arange(dim)) for indices, dim in pairs):
        return step(node, None)
    if sized and all(_is_order(indices, np.arange(dim)[::-1]) for indices, dim in pairs):
        return flip(node, len(shape), [axis])
    if array is not None and array.size > 1 and (np.diff(array) < 0).sum() * 2 >= array.size - 1:
        return Miss(f"the Gather's {array.size} indices are not axis {axis} ({shape[axis]}) in reverse",
                    node.outputs[0].name or "")
    return None


def _counts_up(array: np.ndarray) -> bool:
    return array.ndim == 1 and np.array_equal(array, np.arange(array.size))


def _is_order(indices: np.ndarray, order: np.ndarray) -> bool:
    return np.array_equal(np.where(indices < 0, indices + len(order), indices), order)


@reader("ReverseSequence")
def _reverse_sequence(node: ir.Node, scope: Scope) -> Step | Miss | None:
    source, lengths = node.inputs
    shape = shape_of(source, scope)
    if shape is None:
        return None
    time, batch = node.attributes.get_int("time_axis", 0), node.attributes.get_int("batch_axis", 1)
    doubt = _doubt([lengths], source, scope)
    if doubt is not None and doubt != "depend on data":
        return Miss(f"the lengths of the ReverseSequence {doubt}", node.outputs[0].name or "")
    try:
        tried = [] if doubt else list(_tried([lengths], source, scope))
    except EvaluationError:
        return None
    if tried and _shown(shape, [time, batch], [dims for _, dims in tried]) and all(
            rows.shape == (dims[batch],) and (rows == dims[time]).all() for (rows,), dims in tried):
        return flip(node, len(shape), [time])
    return Miss(f"the ReverseSequence does not reverse all of axis {time} in every row", node.outputs[0].name or "")


def _shown(shape: Sequence[Dim], axes: Sequence[int], sizes: Sequence) -> bool:
    """Whether the trials gave each of these axes more than one length, unless it has but one."""
    return all(isinstance(shape[axis], int) or len({dims[axis] for dims in sizes}) > 1 for axis in axes)


def _doubt(values: Sequence[ir.Value], source: ir.Value, scope: Scope) -> str | None:
    """Why trying sizes does not prove what is computed for a node that reads `source`; None if it does.

    Proven is what is affine in the sizes of the model's inputs and of `source`. A number that a caller passes in, or
    that a loop counts, is no size: it may take the values 0, 1 and -1, which sizes are not tried with.
    """
    own = set(shape_of(source, scope) or ())
    stack, seen = list(values), set()
    while stack:
        value = stack.pop()
        if value in seen or kind(value, scope) is Kind.CONSTANT:
            continue
        seen.add(value)
        node = value.producer()
        if kind(value, scope) is Kind.DATA:
            return "depend on data"
        if node is None:
            return f"depend on the value of the input {value.name}"
        if not is_affine(node, scope):
            return f"are computed by {node.op_type}, which trying sizes does not prove"
        if node.op_type == "Shape":
            dims = shape_of(node.inputs[0], scope)
            if dims is None or not all(isinstance(d, int) or d in own or d in scope.facts.shapes.anchors for d in dims):
                return "are computed from the shape of another tensor, which is not known"
        else:
            stack += [operand for operand in node.inputs if operand is not None]
    return None


def _tried(values: Sequence[ir.Value], source: ir.Value, scope: Scope) -> Iterator[tuple[list[np.ndarray], tuple]]:
    """(the values, the dims of `source`) under every trial of sizes.

    Raises:
        EvaluationError: something that cannot be evaluated.
    """
    dims = shape_of(source, scope)
    known = dims is not None and all(isinstance(d, int) or d in scope.facts.shapes.anchors for d in dims)
    for trial in scope.trials([*values, source]):
        try:
            sizes = tuple(trial.sizes.get(d, d) for d in dims) if known else (None,)
            if not all(isinstance(size, int) for size in sizes):
                sizes = trial.shape(source)
            given = [trial.value(value) for value in values]
        except EvaluationError:
            if trial.optional:
                continue
            raise
        yield given, sizes
