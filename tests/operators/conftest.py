"""Models made of operators of custom.ops, with the functions that are generated for them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from patterns.operators import OPERATORS
from rewriter.functions import attach

DOMAIN = "custom.ops"


def _assemble(calls, opset, *, dynamic=False):
    """A model with one node for each call (op_type, {input name: array}, attributes), and its feeds.

    Inputs called `size` are constants unless `dynamic`, all others are graph inputs. The dims of graph inputs are
    fixed but for the first, and not at all where `dynamic`. Outputs are y0, y1, ...
    """
    nodes, inputs, constants, outputs, feeds = [], [], [], [], {}
    for index, (op_type, operands, attributes) in enumerate(calls):
        names = []
        for name, array in operands.items():
            names.append(f"{name}{index}")
            if name == "size" and not dynamic:
                constants.append(onnx.numpy_helper.from_array(array, names[-1]))
                continue
            feeds[names[-1]] = array
            fixed = array.shape if name == "size" else (f"n{index}", *array.shape[1:])
            shape = [f"{names[-1]}_{axis}" for axis in range(array.ndim)] if dynamic and name == "x" else fixed
            inputs.append(helper.make_tensor_value_info(names[-1], _dtype(array), shape))
        first = next(iter(operands.values()))
        dims = [f"y{index}_{axis}" for axis in range(len(operands["size"]))]
        outputs.append(helper.make_tensor_value_info(f"y{index}", _dtype(first), dims))
        nodes.append(helper.make_node(op_type, names, [f"y{index}"], f"node{index}", domain=DOMAIN, **attributes))
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    model = ir.serde.deserialize_model(helper.make_model(graph, opset_imports=imports, ir_version=8))
    attach(model, OPERATORS)
    return ir.serde.serialize_model(model), feeds


def _dtype(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


@pytest.fixture
def assemble():
    return _assemble
