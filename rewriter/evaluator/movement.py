"""Operators that move elements without changing them."""

from __future__ import annotations

import numpy as np

from rewriter.evaluator.table import EvaluationError, each, guard, operator, within

first = within(0)


@operator("Transpose", linear=first)
def _transpose(call):
    return np.transpose(call.inputs[0], call.attr("perm"))


@operator("Reshape", linear=first)
def _reshape(call):
    array = call.inputs[0]
    target = [int(d) for d in (call.attr("shape") if call.has("shape") else call.inputs[1])]
    if not call.attr("allowzero", 0):
        target = [array.shape[i] if d == 0 else d for i, d in enumerate(target)]
    return array.reshape(target)


@operator("Flatten", linear=first)
def _flatten(call):
    axis = call.attr("axis", 1)
    shape = call.inputs[0].shape
    axis += len(shape) if axis < 0 else 0
    return call.inputs[0].reshape(int(np.prod(shape[:axis])), -1)


@operator("Squeeze", linear=first)
def _squeeze(call):
    return np.squeeze(call.inputs[0], call.axes(1))


@operator("Unsqueeze", linear=first)
def _unsqueeze(call):
    return np.expand_dims(call.inputs[0], call.axes(1))


@operator("Expand", linear=first)
def _expand(call):
    array = call.inputs[0]
    shape = guard(np.broadcast_shapes(array.shape, tuple(int(d) for d in call.inputs[1])))
    return np.broadcast_to(array, shape)


@operator("Tile", linear=first)
def _tile(call):
    array, repeats = call.inputs[0], [int(r) for r in call.inputs[1]]
    guard(d * r for d, r in zip(array.shape, repeats))
    return np.tile(array, repeats)


@operator("Concat", linear=each)
def _concat(call):
    return np.concatenate(call.inputs, axis=call.attr("axis", 1))


@operator("Split", linear=first)
def _split(call):
    array, axis = call.inputs[0], call.attr("axis", 0)
    sizes = call.attr("split") if call.has("split") else call.get(1)
    if sizes is None:
        parts = call.attr("num_outputs") or len(call.node.outputs)
        size = -(-array.shape[axis] // parts)
        sizes = [size] * (parts - 1) + [array.shape[axis] - size * (parts - 1)]
    return tuple(np.split(array, np.cumsum([int(s) for s in sizes])[:-1], axis=axis))


@operator("Slice", linear=first)
def _slice(call):
    array = call.inputs[0]
    if call.has("starts"):
        starts, ends, axes, steps = call.attr("starts"), call.attr("ends"), call.attr("axes"), None
    else:
        starts, ends, axes, steps = call.inputs[1], call.inputs[2], call.get(3), call.get(4)
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    index = [slice(None)] * array.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        index[int(axis)] = _clamped(int(start), int(end), int(step), array.shape[int(axis)])
    return array[tuple(index)]


def _clamped(start: int, end: int, step: int, length: int) -> slice:
    """ONNX bounds as a Python slice: negative ones count from the end, the rest is clamped."""
    start += length if start < 0 else 0
    end += length if end < 0 else 0
    if step > 0:
        return slice(min(max(start, 0), length), min(max(end, 0), length), step)
    end = min(max(end, -1), length - 1)
    return slice(min(max(start, 0), length - 1), None if end < 0 else end, step)


@operator("Gather", linear=first)
def _gather(call):
    return np.take(call.inputs[0], call.inputs[1].astype(np.int64), axis=call.attr("axis", 0))


@operator("GatherElements", linear=first)
def _gather_elements(call):
    return np.take_along_axis(call.inputs[0], call.inputs[1].astype(np.int64), axis=call.attr("axis", 0))


@operator("GatherND", linear=first)
def _gather_nd(call):
    array, indices = call.inputs
    if call.attr("batch_dims", 0):
        raise EvaluationError("GatherND with batch_dims")
    return array[tuple(np.moveaxis(indices, -1, 0))]


@operator("Pad", linear=within(0, 2))
def _pad(call):
    array = call.inputs[0]
    if (call.attr("mode") or "constant") != "constant":
        raise EvaluationError(f"Pad mode {call.attr('mode')}")
    pads = [int(p) for p in (call.attr("pads") if call.has("pads") else call.inputs[1])]
    fill = call.attr("value", 0.0) if call.get(2) is None else np.ravel(call.inputs[2])[0]
    axes = [int(a) for a in call.inputs[3]] if call.get(3) is not None else list(range(array.ndim))
    widths, crop = [(0, 0)] * array.ndim, [slice(None)] * array.ndim
    for k, axis in enumerate(axes):
        low, high = pads[k], pads[k + len(axes)]
        widths[axis] = max(low, 0), max(high, 0)
        crop[axis] = slice(max(-low, 0), high if high < 0 else None)
    guard(d + low + high for d, (low, high) in zip(array.shape, widths))
    return np.pad(array, widths, constant_values=fill)[tuple(crop)]


@operator("ScatterND", linear=within(0, 2))
def _scatter_nd(call):
    array, indices, updates = call.inputs
    result = np.array(array, np.result_type(array, updates), copy=True)
    places = tuple(np.moveaxis(indices.astype(np.int64), -1, 0))
    _accumulate(result, places, updates, call.attr("reduction", "none"))
    return result


@operator("ScatterElements", "Scatter", linear=within(0, 2))
def _scatter_elements(call):
    array, indices, updates = call.inputs
    axis = call.attr("axis", 0) % array.ndim
    result = np.array(array, np.result_type(array, updates), copy=True)
    places = list(np.indices(indices.shape, sparse=True))
    length = array.shape[axis]
    places[axis] = np.where(indices < 0, indices + length, indices).astype(np.int64)
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
    result = np.array(array, copy=True)
    moved = np.moveaxis(result, (batch, time), (0, 1))
    source = np.moveaxis(array, (batch, time), (0, 1))
    for row, length in enumerate(int(n) for n in lengths):
        moved[row, :length] = source[row, :length][::-1]
    return result
