"""Building chains of flips and transposes in every spelling, with what they compute beside them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

FIRST, LAST = -(2**63), 2**63 - 1  # INT64_MIN, INT64_MAX


class Sketch:
    """A model with one input "x"; every method appends nodes and returns the name of their result."""

    def __init__(self, x: np.ndarray, *, opset: int = 17, dims=None):
        self.opset, self.values, self.nodes, self.initializers, self.inputs = opset, {"x": x}, [], [], []
        self.feeds = {"x": x}
        self.inputs.append(helper.make_tensor_value_info("x", _type(x), list(dims or x.shape)))

    def op(self, op_type, inputs, value, outputs=None, **attributes) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, outputs or [name], name=f"{op_type}_{name}", **attributes))
        self.values[name] = value
        return name

    def const(self, array, dtype=np.int64, *, node=False) -> str:
        """An initializer, or a Constant node."""
        tensor = numpy_helper.from_array(np.asarray(array, dtype), f"c{len(self.initializers)}_{len(self.nodes)}")
        if node:
            return self.op("Constant", [], np.asarray(array, dtype), value=tensor)
        self.initializers.append(tensor)
        return tensor.name

    def input(self, name, array, dims=None) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, _type(array), list(dims or array.shape)))
        self.feeds[name] = array
        return name

    def transpose(self, x, perm, **attributes) -> str:
        return self.op("Transpose", [x], self.values[x].transpose(perm), **(attributes or {"perm": perm}))

    def slice(self, x, starts, ends, axes, steps, value=None, dtype=np.int64) -> str:
        """`value` where it is no flip of all the axes."""
        value = np.flip(self.values[x], tuple(axes)) if value is None else value
        operands = [self.const(row, dtype) for row in (starts, ends, axes, steps)]
        return self.op("Slice", [x, *operands], value)

    def flip(self, x, axes, spelling="slice") -> str:
        """Reverse axes, by one node for all ("slice") or one each."""
        if spelling == "slice":
            n = len(axes)
            return self.slice(x, [-1] * n, [FIRST] * n, axes, [-1] * n)
        for axis in axes:
            x = getattr(self, spelling)(x, axis)
        return x

    def far(self, x, axis) -> str:
        """A Slice by int32 bounds, from beyond the end to beyond the beginning."""
        return self.slice(x, [2**31 - 1], [-(2**31)], [axis], [-1], dtype=np.int32)

    def exact(self, x, axis) -> str:
        """A Slice from index n - 1 to -n - 1, its axis counted from the end."""
        n, rank = self.values[x].shape[axis], self.values[x].ndim
        return self.slice(x, [n - 1], [-n - 1], [axis - rank], [-1], value=np.flip(self.values[x], axis))

    def gather(self, x, axis) -> str:
        index = np.arange(self.values[x].shape[axis])[::-1]
        return self.op("Gather", [x, self.const(index)], np.flip(self.values[x], axis), axis=axis)

    def gather_negative(self, x, axis) -> str:
        index = -1 - np.arange(self.values[x].shape[axis])
        return self.op("Gather", [x, self.const(index)], np.flip(self.values[x], axis), axis=axis)

    def reverse_sequence(self, x, axis) -> str:
        batch = 0 if axis == 1 else 1
        shape = self.values[x].shape
        rows = self.const([shape[axis]] * shape[batch])
        # ONNX allows the first two axes only
        return self.op("ReverseSequence", [x, rows], np.flip(self.values[x], axis), time_axis=axis, batch_axis=batch)

    def split(self, x, axis) -> str:
        value = self.values[x]
        pieces = [f"{x}_{axis}_{i}_{len(self.nodes)}" for i in range(value.shape[axis])]
        sizes = [1] * len(pieces)
        inputs, attributes = ([x, self.const(sizes)], {}) if self.opset >= 13 else ([x], {"split": sizes})
        self.op("Split", inputs, None, pieces, axis=axis, **attributes)
        return self.op("Concat", pieces[::-1], np.flip(value, axis), axis=axis)

    def scale(self, x, factor, op_type="Mul", shape=(), swap=False) -> str:
        value = self.values[x]
        operand = self.const(np.full(shape, factor), value.dtype)
        function = {"Mul": np.multiply, "Div": np.divide}[op_type]
        result = function(value, np.full(shape, factor, value.dtype)).astype(value.dtype)
        return self.op(op_type, [operand, x] if swap else [x, operand], result)

    def model(self, *outputs, dims=None) -> onnx.ModelProto:
        infos = [helper.make_tensor_value_info(name, _type(self.values[name]), dims or [None] * self.values[name].ndim)
                 for name in outputs]
        graph = helper.make_graph(self.nodes, "chain", self.inputs, infos, self.initializers)
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", self.opset)])
        onnx.checker.check_model(model)
        return model


def _type(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)
