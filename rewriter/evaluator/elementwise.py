"""Arithmetic, comparison and reduction."""

from __future__ import annotations

import functools

import numpy as np

from rewriter.evaluator.table import EvaluationError, each, guard, numpy_dtype, one, operator, within


def _broadcast(*arrays):
    guard(np.broadcast_shapes(*(a.shape for a in arrays)))
    return arrays


def _binary(function):
    return lambda call: function(*_broadcast(*call.inputs))


def _divide(a, b):
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":  # ONNX truncates towards zero, numpy floors
        if not np.all(b):
            raise EvaluationError("integer division by zero")
        return np.floor_divide(a - np.fmod(a, b), b)
    return np.true_divide(a, b)


def _modulo(call):
    a, b = _broadcast(*call.inputs)
    if b.dtype.kind in "iu" and not np.all(b):
        raise EvaluationError("integer remainder of a division by zero")
    return np.fmod(a, b) if call.attr("fmod", 0) else np.mod(a, b)


operator("Add", linear=each)(_binary(np.add))
operator("Sub", linear=each)(_binary(np.subtract))
operator("Mul", linear=one)(_binary(np.multiply))
operator("Div", linear=within(0))(_binary(_divide))
operator("Pow")(_binary(lambda a, b: np.power(a, b).astype(a.dtype)))
operator("Mod")(_modulo)
operator("Neg", linear=each)(lambda call: np.negative(call.inputs[0]))
operator("Identity", linear=each)(lambda call: call.inputs[0])
operator("Equal")(_binary(np.equal))
operator("Less")(_binary(np.less))
operator("LessOrEqual")(_binary(np.less_equal))
operator("Greater")(_binary(np.greater))
operator("GreaterOrEqual")(_binary(np.greater_equal))
operator("And")(_binary(np.logical_and))
operator("Or")(_binary(np.logical_or))
operator("Xor")(_binary(np.logical_xor))
operator("Not")(lambda call: np.logical_not(call.inputs[0]))
operator("IsNaN")(lambda call: np.isnan(call.inputs[0]))
operator("Reciprocal")(lambda call: (1 / call.inputs[0]).astype(call.inputs[0].dtype))

for _name, _function in {
    "Abs": np.abs, "Sign": np.sign, "Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Sqrt": np.sqrt,
    "Exp": np.exp, "Log": np.log, "Sin": np.sin, "Cos": np.cos, "Tan": np.tan, "Tanh": np.tanh,
}.items():
    operator(_name)(lambda call, f=_function: f(call.inputs[0]).astype(call.inputs[0].dtype))


@operator("IsInf")
def _is_inf(call):
    array, below, above = call.inputs[0], call.attr("detect_negative", 1), call.attr("detect_positive", 1)
    return np.isinf(array) & np.where(array < 0, bool(below), bool(above))


@operator("Sum", linear=each)
def _sum(call):
    return functools.reduce(np.add, _broadcast(*call.inputs))


@operator("Mean", linear=each)
def _mean(call):
    return _sum(call) / len(call.inputs)


@operator("Min")
def _min(call):
    return functools.reduce(np.minimum, _broadcast(*call.inputs))


@operator("Max")
def _max(call):
    return functools.reduce(np.maximum, _broadcast(*call.inputs))


@operator("Clip")
def _clip(call):
    result = call.inputs[0]
    for bound, choose in ((call.attr("min", call.get(1)), np.maximum), (call.attr("max", call.get(2)), np.minimum)):
        if bound is not None:
            result = choose(result, np.asarray(bound, result.dtype).reshape(()))
    return result


@operator("Where", linear=within(1, 2))
def _where(call):
    return np.where(*_broadcast(*call.inputs))


@operator("Cast", linear=within(0))
def _cast(call):
    return _convert(call.inputs[0], numpy_dtype(call.attr("to")))


@operator("CastLike", linear=within(0))
def _cast_like(call):
    return _convert(call.inputs[0], call.like)


def _convert(array, dtype):
    if array.dtype.kind not in "biu" and dtype.kind in "iu" and array.size:
        limits = np.iinfo(dtype)
        if not (limits.min - 1 < float(np.min(array)) and float(np.max(array)) < limits.max + 1):  # refuses NaN as well
            raise EvaluationError(f"a value that {dtype} cannot hold is cast to it")  # what comes out is undefined
    return array.astype(dtype)


@operator("CumSum", linear=within(0))
def _cumsum(call):
    array, axis = call.inputs[0], int(np.ravel(call.inputs[1])[0])
    if call.attr("reverse", 0):
        array = np.flip(array, axis)
    total = np.cumsum(array, axis=axis, dtype=array.dtype)
    if call.attr("exclusive", 0):
        total = np.roll(total, 1, axis)
        np.moveaxis(total, axis, 0)[:1] = 0
    return np.flip(total, axis) if call.attr("reverse", 0) else total


def _reduce(function):
    def run(call):
        array, axes = call.inputs[0], call.axes(1)
        if not axes:
            if call.attr("noop_with_empty_axes", 0):
                return array
            axes = None
        return np.asarray(function(array, axis=axes, keepdims=bool(call.attr("keepdims", 1)))).astype(array.dtype)

    return run


operator("ReduceSum", linear=within(0))(_reduce(np.sum))
operator("ReduceMean", linear=within(0))(_reduce(np.mean))
operator("ReduceProd")(_reduce(np.prod))
operator("ReduceMin")(_reduce(np.min))
operator("ReduceMax")(_reduce(np.max))


@operator("Trilu")
def _trilu(call):
    if call.inputs[0].ndim < 2:
        raise EvaluationError("Trilu of less than a matrix")
    offset = 0 if call.get(1) is None else int(np.ravel(call.inputs[1])[0])
    return (np.triu if call.attr("upper", 1) else np.tril)(call.inputs[0], offset)
