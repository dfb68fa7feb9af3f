"""Operators that make tensors out of shapes and sizes. Shape and Size themselves are answered by the Evaluator."""

from __future__ import annotations

import numpy as np

from rewriter.evaluator.table import EvaluationError, dense, guard, numpy_dtype, operator


@operator("Constant")
def _constant(call):
    for name in ("value_int", "value_ints"):
        if call.has(name):
            return np.asarray(call.attr(name), np.int64)
    for name in ("value_float", "value_floats"):
        if call.has(name):
            return np.asarray(call.attr(name), np.float32)
    if call.has("value"):
        return dense(call.attr("value"))
    raise EvaluationError("a Constant that is not a dense number")


@operator("ConstantOfShape")
def _constant_of_shape(call):
    fill = dense(call.attr("value")) if call.has("value") else np.zeros(1, np.float32)
    return np.full(guard(call.inputs[0]), fill.reshape(()), fill.dtype)


@operator("Range")
def _range(call):
    start, limit, delta = (np.ravel(a)[0] for a in call.inputs)
    if not delta:
        raise EvaluationError("Range with step 0")
    count = max(int(np.ceil((float(limit) - float(start)) / float(delta))), 0)
    guard((count,))
    return (start + np.arange(count).astype(call.inputs[0].dtype) * delta).astype(call.inputs[0].dtype)


@operator("EyeLike")
def _eye_like(call):
    rows, columns = call.inputs[0].shape
    dtype = numpy_dtype(call.attr("dtype")) if call.has("dtype") else call.inputs[0].dtype
    return np.eye(rows, columns, call.attr("k", 0), dtype)


@operator("NonZero")
def _non_zero(call):
    guard((call.inputs[0].ndim, np.count_nonzero(call.inputs[0])))
    return np.stack(np.nonzero(call.inputs[0])).astype(np.int64)


@operator("OneHot")
def _one_hot(call):
    indices, depth, values = call.inputs
    depth, axis = int(np.ravel(depth)[0]), call.attr("axis", -1)
    guard((*indices.shape, depth))
    place = np.where(indices < 0, indices + depth, indices)[..., None]  # those out of range are hot nowhere
    hot = place == np.arange(depth)
    return np.moveaxis(np.where(hot, values[1], values[0]), -1, axis).astype(values.dtype)
