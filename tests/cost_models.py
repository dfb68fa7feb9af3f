"""Models to count what recognition costs, and the counting."""

from __future__ import annotations

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from small_models import base_grid

import rewriter
from rewriter.evaluator import Evaluator
from rewriter.report import Report


def many_grids(count: int, *, dynamic: bool) -> onnx.ModelProto:
    """`count` samplers in a chain, each with a theta and a grid of its own: 8x8, or of its image's size."""
    size = ["H", "W"] if dynamic else [8, 8]
    nodes, inputs = [], [helper.make_tensor_value_info("x_0", TensorProto.FLOAT, [1, 1, *size])]
    weights = {"base": base_grid(8, 8), "shape": np.array([1, 8, 8, 2]), "zero": np.array(0), "one": np.array(1),
               "h": np.array(2), "w": np.array(3), "two": np.float32(2), "unit": np.float32(1),
               "row": np.array([1, -1]), "column": np.array([-1, 1]), "last": np.array([-1]),
               "flat": np.array([1, -1, 3]), "back": np.array([2])}

    def op(op_type, *operands, out, **attributes):
        nodes.append(helper.make_node(op_type, operands, [out], **attributes))
        return out

    for k in range(count):
        inputs.append(helper.make_tensor_value_info(f"theta_{k}", TensorProto.FLOAT, [1, 2, 3]))
        op("Transpose", f"theta_{k}", out=f"t_{k}", perm=[0, 2, 1])
        base, shape = "base", "shape"
        if dynamic:
            op("Shape", f"x_{k}", out=f"s_{k}")
            for axis, target in (("h", "column"), ("w", "row")):
                n = op("Gather", f"s_{k}", axis, out=f"{axis}_{k}")
                real = op("Cast", n, out=f"{axis}f_{k}", to=TensorProto.FLOAT)
                line = op("Range", "zero", n, "one", out=f"{axis}r_{k}")
                i = op("Cast", line, out=f"{axis}i_{k}", to=TensorProto.FLOAT)
                odd = op("Add", op("Mul", i, "two", out=f"{axis}m_{k}"), "unit", out=f"{axis}a_{k}")
                line = op("Sub", op("Div", odd, real, out=f"{axis}d_{k}"), "unit", out=f"{axis}x_{k}")
                op("Reshape", line, target, out=f"{axis}l_{k}")
            plane = op("Slice", f"s_{k}", "back", "end", "first", out=f"p_{k}")
            parts = [op("Unsqueeze", op("Expand", part, plane, out=f"e{j}_{k}"), "last", out=f"u{j}_{k}")
                     for j, part in enumerate((f"wl_{k}", f"hl_{k}", "unit"))]
            base = op("Reshape", op("Concat", *parts, out=f"c_{k}", axis=2), "flat", out=f"b_{k}")
            shape = op("Concat", "lead", plane, "back", out=f"g_{k}", axis=0)
        op("Reshape", op("MatMul", base, f"t_{k}", out=f"f_{k}"), shape, out=f"grid_{k}")
        op("GridSample", f"x_{k}", f"grid_{k}", out=f"x_{k + 1}")
    weights |= {"end": np.array([4]), "first": np.array([0]), "lead": np.array([1])}
    output = helper.make_tensor_value_info(f"x_{count}", TensorProto.FLOAT, [1, 1, None, None])
    graph = helper.make_graph(nodes, "many", inputs, [output],
                              [numpy_helper.from_array(np.asarray(a), name) for name, a in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def calls(model: onnx.ModelProto) -> tuple[Report, int]:
    """Fuse, and count the calls of Python functions: what no clock tells as surely."""
    count = 0

    def counting(frame, event, argument):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counting)
    try:
        return rewriter.fuse(model)[1], count
    finally:
        sys.setprofile(before)


def evaluations(model: onnx.ModelProto) -> tuple[Report, int]:
    """Fuse, and count the nodes that were evaluated."""
    count, compute = 0, Evaluator._compute

    def counting(self, *args):
        nonlocal count
        count += 1
        return compute(self, *args)

    Evaluator._compute = counting
    try:
        return rewriter.fuse(model)[1], count
    finally:
        Evaluator._compute = compute
