"""Operators that move elements without changing them."""

from __future__ import annotations

import math

import numpy as np

from rewriter.evaluator.table import MOST_AXES, EvaluationError, each, few, guard, operator, within

first = within(0)


@operator("Transpose", linear=first)
def _transpose(call):
    return np.transpose(call.inputs[0], call.attr("perm"))


@operator("Reshape", linear=first)
def _reshape(call):
    array = call.inputs[0]
    target = few(call.attr("shape") if call.has("shape") else call.inputs[1])
    if not call.attr("allowzero", 0):
        target = [array.shape[i] if d == 0 else d for i, d in enumerate(target)]
    if any(d < -1 for d in target):
        raise EvaluationError(f"Reshape to {target}")
    return array.reshape(target)


@operator("Flatten", linear=first)
def _flatten(call):
    axis = call.attr("axis", 1)
    shape = call.inputs[0].shape
    axis += len(shape) if axis < 0 else 0
    return call.inputs[0].reshape(math.prod(shape[:axis]), math.prod(shape[axis:]))


@operator("Squeeze", linear=first)
def _squeeze(call):
    if (axes := call.axes(1)) == ():
        raise EvaluationError("Squeeze of an empty list of axes: runtimes disagree whether it means none or all")
    return np.squeeze(call.inputs[0], axes)


@operator("Unsqueeze", linear=first)
def _unsqueeze(call):
    return np.expand_dims(call.inputs[0], call.axes(1))


@operator("Expand", linear=first)
def _expand(call):
    array = call.inputs[0]
    shape = guard(np.broadcast_shapes(array.shape, tuple(few(call.inputs[1]))))
    return np.broadcast_to(array, shape)


@operator("Tile", linear=first)
def _tile(call):
    array, repeats = call.inputs[0], few(call.inputs[1])
    if len(repeats) != array.ndim:
        raise EvaluationError(f"Tile of rank {array.ndim} by {len(repeats)} repeats")
    guard(d * r for d, r in zip(array.shape, repeats))
    return np.tile(array, repeats)


@operator("Concat", linear=each)
def _concat(call):
    axis, shape = call.attr("axis", 1), list(call.inputs[0].shape)
    shape[axis] = sum(array.shape[axis] for array in call.inputs)
    guard(shape)
    return np.concatenate(call.inputs, axis=axis)


@operator("Split", linear=first)
def _split(call):
    array, axis = call.inputs[0], call.attr("axis", 0)
    sizes = call.attr("split") if call.has("split") else call.get(1)
    length, parts = array.shape[axis], len(call.node.outputs)
    if sizes is None:
        if length % parts and not call.has("num_outputs"):
            raise EvaluationError(f"{length} elements do not split evenly into {parts}")
        size = -(-length // parts)
        sizes = [size] * (parts - 1) + [length - size * (parts - 1)]
    sizes = few(sizes, max(parts, MOST_AXES))
    if len(sizes) != parts or min(sizes) < 0 or sum(sizes) != length:
        raise EvaluationError(f"{length} elements do not split into {sizes}")
    return tuple(np.split(array, np.cumsum(sizes)[:-1], axis=axis))


@operator("Slice", linear=first)
def _slice(call):
    array = call.inputs[0]
    if call.has("starts"):
        starts, ends, axes, steps = call.attr("starts"), call.attr("ends"), call.attr("axes"), None
    else:
        starts, ends, axes, steps = call.inputs[1], call.inputs[2], call.get(3), call.get(4)
    starts, ends = few(starts), few(ends)
    axes = range(len(starts)) if axes is None else few(axes)
    steps = [1] * len(starts) if steps is None else few(steps)
    index = [slice(None)] * array.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        index[axis] = _clamped(start, end, step, array.shape[axis])
    return array[tuple(index)]


def _clamped(start: int, end: int, step: int, length: int) -> slice:
    """ONNX bounds as a Python slice: negative ones count from the end, the rest is clamped."""
    start += length if start < 0 else 0
    if step < 0 and end in (2**31 - 1, 2**63 - 1):
        raise EvaluationError("a backward Slice to INT_MAX: runtimes disagree whether it is empty or a full flip")
    end += length if end < 0 else 0
    if step > 0:
        return slice(min(max(start, 0), length), min(max(end, 0), length), step)
    end = min(max(end, -1), length - 1)
    return slice(min(max(start, 0), length - 1), None if end < 0 else end, step)


@operator("Gather", linear=first)
def _gather(call):
    array, indices, axis = call.inputs[0], call.inputs[1].astype(np.int64), call.attr("axis", 0)
    guard((array.size // max(array.shape[axis], 1), indices.size))
    return np.take(array, indices, axis=axis)


@operator("GatherElements", linear=first)
def _gather_elements(call):
    array, indices = call.inputs[0], call.inputs[1].astype(np.int64)
    axis = call.attr("axis", 0) % array.ndim
    if any(k != axis and n > m for k, (n, m) in enumerate(zip(indices.shape, array.shape))):
        raise EvaluationError(f"GatherElements of {array.shape} at indices of shape {indices.shape}")
    # beside the axis, the indices may cover a corner of the data only
    corner = tuple(slice(None) if k == axis else slice(n) for k, n in enumerate(indices.shape))
    return np.take_along_axis(array[corner], indices, axis=axis)


@operator("GatherND", linear=first)
def _gather_nd(call):
    array, indices = call.inputs
    if call.attr("batch_dims", 0):
        raise EvaluationError("GatherND with batch_dims")
    guard((*indices.shape[:-1], *array.shape[indices.shape[-1]:]))
    return array[tuple(np.moveaxis(indices, -1, 0))]


@operator("Pad", linear=within(0, 2))
def _pad(call):
    array = call.inputs[0]
    if (call.attr("mode") or "constant") != "constant":
        raise EvaluationError(f"Pad mode {call.attr('mode')}")
    pads = few(call.attr("pads") if call.has("pads") else call.inputs[1], 2 * array.ndim)
    fill = call.attr("value", 0.0)
    if call.get(2) is not None:
        fill = call.inputs[2].reshape(())
        array = array.astype(np.result_type(array, fill), copy=False)  # the fill alone may carry parameters
    axes = few(call.inputs[3]) if call.get(3) is not None else list(range(array.ndim))
    widths, crop = [(0, 0)] * array.ndim, [slice(None)] * array.ndim
    for k, axis in enumerate(axes):
        low, high = pads[k], pads[k + len(axes)]
        if array.shape[axis] + low + high < 0:
            raise EvaluationError(f"Pad by {low} and {high} of {array.shape[axis]} elements")
        widths[axis] = max(low, 0), max(high, 0)
        crop[axis] = slice(max(-low, 0), high if high < 0 else None)
    guard(d + low + high for d, (low, high) in zip(array.shape, widths))
    return np.pad(array, widths, constant_values=fill)[tuple(crop)]


@operator("ScatterND", linear=within(0, 2))
def _scatter_nd(call):
    array, indices, updates = call.inputs
    result = np.array(array, np.result_type(array, updates), copy=True)
    if updates.shape != (*indices.shape[:-1], *array.shape[indices.shape[-1]:]):
        raise EvaluationError(f"ScatterND of updates {updates.shape} at indices {indices.shape} of {array.shape}")
    places = tuple(np.moveaxis(indices, -1, 0))
    _accumulate(result, places, updates, call.attr("reduction", "none"))
    return result


@operator("ScatterElements", "Scatter", linear=within(0, 2))
def _scatter_elements(call):
    array, indices, updates = call.inputs
    axis = call.attr("axis", 0) % array.ndim
    result = np.array(array, np.result_type(array, updates), copy=True)
    places = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices
    _accumulate(result, tuple(places), updates, call.attr("reduction", "none"))
    return result


def _accumulate(result, places, updates, reduction):
    if reduction == "none":
        result[places] = updates
    elif reduction == "add":
        np.add.at(result, places, updates)
    else:
        raise EvaluationError(f"scatter with reduction {reduction}")


@operator("ReverseSequence", linear=first)
def _reverse_sequence(call):
    array, lengths = call.inputs
    batch, time = call.attr("batch_axis", 1), call.attr("time_axis", 0)
    if lengths.shape != (array.shape[batch],) or np.any((lengths < 0) | (lengths > array.shape[time])):
        raise EvaluationError(f"ReverseSequence of {array.shape} with lengths of shape {lengths.shape}")
    source = np.moveaxis(array, (batch, time), (0, 1))
    places, ends = np.arange(array.shape[time]), lengths.astype(np.int64)[:, None]
    places = np.where(places < ends, ends - 1 - places, places)
    return np.moveaxis(source[np.arange(len(lengths))[:, None], places], (0, 1), (batch, time))
