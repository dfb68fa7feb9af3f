"""Shapes and dtypes that can be trusted: inferred from the model's inputs, never read from value_info.

Other tools leave stale value_info behind, so ONNX's inference runs on a skeleton that has none, with the weights
replaced by their types (handing weights to inference costs seconds and gains nothing).
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

Dims = tuple[int | str, ...]
INLINE_BYTES = 4096  # an initializer up to this size may be a shape, so inference gets to see it


class ShapeTable:
    """What is known of the values of a model: `shape(value)`, `dtype(value)`. Unknown dims are unique symbols.

    Attributes:
        anchors: the symbols among the dims of the model's inputs.
    """

    def __init__(self, model: ir.Model):
        self._dims: dict[ir.Value, Dims] = {}
        self._types: dict[ir.Value, ir.DataType] = {}
        self.anchors = {d for v in model.graph.inputs for d in _declared(v) or () if isinstance(d, str)}
        self._read_graph(model.graph, _infer(_skeleton(model)))
        for function in model.functions.values():
            self._read_function(model, function)

    def shape(self, value: ir.Value) -> Dims | None:
        return self._dims.get(value)

    def dtype(self, value: ir.Value) -> ir.DataType | None:
        return self._types.get(value)

    def adopt(self, value: ir.Value, like: ir.Value | None = None) -> None:
        """Learn a value the rewriter made: what it declares of itself, or what is known of the value it replaces."""
        source = like if like is not None else value
        dims = self._dims.get(source) or _declared(value)
        dtype = self._types.get(source) or value.dtype
        if dims is not None:
            self._dims[value] = dims
        if dtype is not None:
            self._types[value] = dtype

    def _read_graph(self, graph: ir.Graph, proto: onnx.GraphProto | None) -> None:
        for value in graph.inputs:
            self.adopt(value)
        self._read_constants(graph)
        known = {}
        if proto is not None:
            known = {info.name: info.type.tensor_type for info in (*proto.value_info, *proto.output)
                     if info.type.HasField("tensor_type")}
        for index, node in enumerate(graph):
            for value in node.outputs:
                info = known.get(value.name)
                if info is not None and value not in self._types:
                    self._learn(value, info)
            if any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values()):
                bodies = {}
                if proto is not None:
                    bodies = {a.name: a.g for a in proto.node[index].attribute if a.type == onnx.AttributeProto.GRAPH}
                for attribute in node.attributes.values():
                    if attribute.type == ir.AttributeType.GRAPH:
                        self._read_graph(attribute.as_graph(), bodies.get(attribute.name))

    def _read_function(self, model: ir.Model, function: ir.Function) -> None:
        """The body of a function, with inputs as all calls of it agree on (a model is closed: there are no others)."""
        calls = [node for graph in (model.graph, *(f.graph for f in model.functions.values()))
                 for node in graph.all_nodes()
                 if (node.domain, node.op_type) == (function.domain, function.name)]
        for index, value in enumerate(function.inputs):
            given = [call.inputs[index] if index < len(call.inputs) else None for call in calls]
            types, shapes = {self._types.get(v) for v in given}, [self._dims.get(v) for v in given]
            if len(types) == 1 and None not in types:
                self._types[value] = types.pop()
            if shapes and None not in shapes and len({len(s) for s in shapes}) == 1:
                self._dims[value] = tuple(
                    dims[0] if len(set(dims)) == 1 and isinstance(dims[0], int) else f"{function.name}.{value.name}.{k}"
                    for k, dims in enumerate(zip(*shapes)))
        self.anchors |= {d for v in function.inputs for d in self._dims.get(v, ()) if isinstance(d, str)}
        proto = onnx.ModelProto(ir_version=max(model.ir_version, 8))
        proto.opset_import.extend(onnx.helper.make_opsetid(d, v) for d, v in function.opset_imports.items())
        _fill(proto.graph, function.graph)
        for value, info in zip(function.inputs, proto.graph.input):
            if value in self._types:
                info.CopyFrom(onnx.helper.make_tensor_value_info(value.name, self._types[value], self._dims.get(value)))
        self._read_graph(function.graph, _infer(proto))

    def _read_constants(self, graph: ir.Graph) -> None:
        for value in graph.initializers.values():
            if value.const_value is not None:
                self._dims.setdefault(value, tuple(int(d) for d in value.const_value.shape))
                self._types[value] = value.const_value.dtype

    def _learn(self, value: ir.Value, info: onnx.TypeProto.Tensor) -> None:
        if info.elem_type:
            self._types[value] = ir.DataType(info.elem_type)
        if info.HasField("shape"):
            self._dims[value] = tuple(
                dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{value.name}.{axis}"
                for axis, dim in enumerate(info.shape.dim))


def _infer(proto: onnx.ModelProto) -> onnx.GraphProto | None:
    """The graph with what inference adds; None where it fails, and only what inputs and initializers say remains."""
    try:
        return onnx.shape_inference.infer_shapes(proto, strict_mode=False, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError):
        return None


def _declared(value: ir.Value) -> Dims | None:
    if value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else dim.value or f"{value.name}.{axis}"
                 for axis, dim in enumerate(value.shape))


def _skeleton(model: ir.Model) -> onnx.ModelProto:
    """The model as a proto without value_info, without output shapes, its larger initializers as typed inputs."""
    proto = onnx.ModelProto(ir_version=max(model.ir_version, 8))
    for domain, version in model.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    _fill(proto.graph, model.graph)
    proto.functions.extend(ir.serde.serialize_function(f) for f in model.functions.values())
    return proto


def _fill(proto: onnx.GraphProto, graph: ir.Graph) -> None:
    proto.name = graph.name or "graph"
    proto.input.extend(ir.serde.serialize_value(value) for value in graph.inputs)
    inputs = set(graph.inputs)
    for value in graph.initializers.values():
        tensor = value.const_value
        if value in inputs or tensor is None:
            continue
        if tensor.nbytes <= INLINE_BYTES:
            proto.initializer.append(ir.serde.serialize_tensor(tensor))
            proto.initializer[-1].name = value.name
        else:
            proto.input.append(onnx.helper.make_tensor_value_info(value.name, int(tensor.dtype), list(tensor.shape)))
    for node in graph:
        made = ir.serde.serialize_node(node)
        for attribute in made.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                attribute.g.Clear()
                _fill(attribute.g, node.attributes[attribute.name].as_graph())
        proto.node.append(made)
    proto.output.extend(onnx.ValueInfoProto(name=value.name) for value in graph.outputs)
