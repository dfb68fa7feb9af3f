"""The unfused model in float64: what the values would be if rounding did not matter.

ONNX Runtime runs what it has float64 kernels for; the nodes it has none for are run by onnx's ReferenceEvaluator.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16}
_STAY_FLOAT = {"Resize": (2,), "Upsample": (1,)}  # inputs that must be float32
_DTYPES = {"Cast": "to", "EyeLike": "dtype", "RandomNormal": "dtype", "RandomUniform": "dtype", "Bernoulli": "dtype"}
_SAMPLES_FLOAT64 = 20  # opset from which ONNX Runtime's GridSample takes float64
MOST_NODES = 2000  # run one by one


class Float64:
    """Runs a model in float64, in a process of its own."""

    def values(self, path: str, folder: str, arrays: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], str]:
        """Outputs by name, and in what they were made.

        Raises:
            Exception: the model cannot be run so; its line says why.
        """
        model = to_double(_load(path, folder))
        feeds = {name: array.astype(np.float64) if array.dtype.kind == "f" or array.dtype.name == "bfloat16" else array
                 for name, array in arrays.items()}
        names = [output.name for output in model.graph.output]
        try:
            return dict(zip(names, _ort(model, feeds, names))), "all of it in ONNX Runtime"
        except Exception as error:
            if len(model.graph.node) > MOST_NODES:
                raise ValueError(f"ONNX Runtime cannot ({error}), and {len(model.graph.node):,} nodes are too many to "
                                 "run one by one") from None
        values, others = _one_by_one(model, feeds)
        return {name: values[name] for name in names}, \
            f"in ONNX Runtime, {', '.join(sorted(others))} in onnx's reference evaluator"


def to_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, changed in place: every float32, float16 and bfloat16 is float64, opset 20 at least if it samples."""
    _double_graph(model.graph)
    return model


def _load(path: str, folder: str) -> onnx.ModelProto:
    model = onnx.load(path, load_external_data=False)
    if folder:
        onnx.load_external_data_for_model(model, folder)
    if model.functions:
        from onnx.inliner import inline_local_functions

        model = inline_local_functions(model)
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset < _SAMPLES_FLOAT64 and any(node.op_type == "GridSample" for node in model.graph.node):
        from onnx import version_converter

        model = version_converter.convert_version(model, _SAMPLES_FLOAT64)
    return model


def _double_graph(graph: onnx.GraphProto) -> None:
    del graph.value_info[:]
    for tensor in graph.initializer:
        _double_tensor(tensor)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in _FLOATS:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for index in _STAY_FLOAT.get(node.op_type, ()):
            if index < len(node.input) and node.input[index]:
                name = f"{node.input[index]}/float32/{len(nodes)}"
                nodes.append(helper.make_node("Cast", [node.input[index]], [name], to=TensorProto.FLOAT))
                node.input[index] = name
        _double_node(node)
        nodes.append(node)
    nodes = [_copied(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(nodes)


def _copied(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _double_node(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            _double_tensor(attribute.t)
        if attribute.HasField("g"):
            _double_graph(attribute.g)
        if _DTYPES.get(node.op_type) == attribute.name and attribute.i in _FLOATS:
            attribute.i = TensorProto.DOUBLE
    if node.op_type == "Constant" and node.attribute and node.attribute[0].name in ("value_float", "value_floats"):
        value = np.float64(helper.get_attribute_value(node.attribute[0]))
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.asarray(value))))
    elif node.op_type == "ConstantOfShape" and not node.attribute:  # its default is a float32 zero
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))


def _double_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _FLOATS:
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), name))


def _ort(model: onnx.ModelProto, feeds: dict[str, np.ndarray], names: list[str]) -> list[np.ndarray]:
    from rewriter.comparing.sessions import make_session

    return make_session(model.SerializeToString(), threads=0).run(names, feeds)


def _one_by_one(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], set[str]]:
    """Every value by name, and the operators that ONNX Runtime could not run."""
    values = {"": None, **{t.name: numpy_helper.to_array(t) for t in model.graph.initializer}, **feeds}
    others: set[str] = set()
    for node in model.graph.node:
        if any(attribute.HasField("g") for attribute in node.attribute):
            raise ValueError(f"ONNX Runtime has not all kernels for float64, and {node.op_type} has subgraphs")
        inputs = {name: values[name] for name in node.input if name}
        names = [name for name in node.output if name]
        graph = helper.make_graph(
            [node], "one", [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype),
                                                          array.shape) for name, array in inputs.items()],
            [onnx.ValueInfoProto(name=name) for name in names])
        one = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
        try:
            if node.op_type in others:
                raise NotImplementedError
            outputs = _ort(one, inputs, names)
        except Exception:
            from onnx.reference import ReferenceEvaluator

            others.add(node.op_type)
            outputs = ReferenceEvaluator(one).run(names, inputs)
        values.update(zip(names, outputs))
    return values, others
