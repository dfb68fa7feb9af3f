"""Models of one node of `custom.ops` each, and sessions that run them on the kernels."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

import rewriter

OUTPUT = "y"


def node_model(op_type: str, operands: dict[str, np.ndarray], attributes: dict | None = None, *,
               narrow: int | None = None, wide: tuple[str, ...] = (), opset: int = 18, shapes: dict | None = None,
               node: str = "node", ir_version: int = 8) -> bytes:
    """A serialized model whose inputs are the operands, and which carries no function: only a kernel can run it.

    Args:
        operands: name -> array, in the operator's order; dtypes and shapes are taken from them.
        narrow: an element type that onnxruntime's Python does not take: operands of float32 are cast to it inside the
            model, and the output back.
        wide: operands that are not cast.
        shapes: other declared shapes, by operand; None leaves even the rank open.
    """
    nodes, inputs, names = [], [], []
    for name, array in operands.items():
        kind = TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)
        inputs.append(helper.make_tensor_value_info(name, kind, (shapes or {}).get(name, array.shape)))
        names.append(name)
        if narrow and array.dtype == np.float32 and name not in wide:
            names[-1] = f"narrow_{name}"
            nodes.append(helper.make_node("Cast", [name], [names[-1]], to=narrow))
    result = "narrow_y" if narrow else OUTPUT
    nodes.append(helper.make_node(op_type, names, [result], node, domain="custom.ops", **(attributes or {})))
    first = inputs[0].type.tensor_type.elem_type
    if narrow:
        nodes.append(helper.make_node("Cast", [result], [OUTPUT], to=first))
    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_tensor_value_info(OUTPUT, first, None)])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("custom.ops", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version).SerializeToString()


def kernel_session(model: bytes, *, threads: int = 2) -> ort.InferenceSession:
    """A session on the kernels. Errors of onnxruntime pass through."""
    options = rewriter.session_options()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_node(op_type: str, operands: dict[str, np.ndarray], attributes: dict | None = None, **options) -> np.ndarray:
    """The output of one node on these operands."""
    (y,) = kernel_session(node_model(op_type, operands, attributes, **options)).run(None, operands)
    return y
