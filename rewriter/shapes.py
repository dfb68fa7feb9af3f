"""Shapes and dtypes that can be trusted: inferred from the model's inputs, never read from value_info.

Other tools leave stale value_info behind, so ONNX's inference runs on a skeleton that has none, with the weights
replaced by their types (handing weights to inference costs seconds and gains nothing). What the inputs of Loop and Scan
bodies declare is believed where it holds by induction: at the start, and after an iteration if before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection

import onnx
import onnx_ir as ir

from rewriter.graphs import bodies, fit_to_expand

Dims = tuple[int | str, ...]
MOST_EXPANDED = 200_000  # nodes, with calls of functions written out, that inference goes through: seconds
DEEPEST_CALLS = 64
INLINE_BYTES = 4096  # an initializer up to this size may be a shape, so inference gets to see it


class ShapeTable:
    """What is known of the values of a model: `shape(value)`, `dtype(value)`. Unknown dims are unique symbols.

    Nothing is inferred before a value is asked for that does not tell by itself.

    Attributes:
        anchors: the symbols among the dims of the model's inputs.
    """

    def __init__(self, model: ir.Model):
        self._model, self._inferred = model, False
        self._dims: dict[ir.Value, Dims] = {}
        self._types: dict[ir.Value, ir.DataType] = {}
        self._doubtful: set[ir.Value] = set()  # body inputs that do not have the shape they declare
        self.anchors = {d for v in model.graph.inputs for d in _declared(v) or () if isinstance(d, str)}

    def shape(self, value: ir.Value) -> Dims | None:
        return self._dims.get(value) if self._knows(value) else _declared(value)

    def dtype(self, value: ir.Value) -> ir.DataType | None:
        return self._types.get(value) if self._knows(value) else value.dtype

    def _knows(self, value: ir.Value) -> bool:
        """Whether the table, by now filled, tells of a value; False where a declaration that holds does."""
        if not self._inferred:
            if value.producer() is None and (value.const_value is not None or value.graph is self._model.graph):
                return False
            self._infer_all()
        return True

    def _infer_all(self) -> None:
        self._inferred = True
        model = self._model
        self._settle(model.graph, lambda: skeleton(model, self._doubtful))
        for function in model.functions.values():
            self._read_function(model, function)

    def adopt(self, value: ir.Value, like: ir.Value | None = None) -> None:
        """Learn a value the rewriter made: what it declares of itself, or what is known of the value it replaces."""
        if not self._inferred:
            self._infer_all()
        source = like if like is not None else value
        dims = self._dims.get(source) or _declared(value)
        dtype = self._types.get(source) or value.dtype
        if dims is not None:
            self._dims[value] = dims
        if dtype is not None:
            self._types[value] = dtype

    def _settle(self, graph: ir.Graph, skeleton: Callable[[], onnx.ModelProto]) -> None:
        """Read a graph again until every declared shape of a body input that was believed proves true."""
        dims, types = dict(self._dims), dict(self._types)
        while True:
            self._read_graph(graph, _infer(skeleton()))
            wrong = self._unproven(graph)
            if not wrong:
                return
            self._doubtful |= wrong
            self._dims, self._types = dict(dims), dict(types)

    def _unproven(self, graph: ir.Graph) -> set[ir.Value]:
        """Body inputs whose declared shape is not that of every value they take; first those that contradict one."""
        wrong: set[ir.Value] = set()
        open_questions: set[ir.Value] = set()
        for node in graph.all_nodes():
            if node.op_type == "If" and node.domain == "":
                continue
            for body in bodies(node):
                taken = _taken_values(node, body)
                for value in body.inputs:
                    declared = self._dims.get(value)
                    claims = {a: d for a, d in enumerate(declared or ()) if d != f"{value.name}.{a}"}
                    for source, axis in taken.get(value, [(None, None)]) if declared is not None else ():
                        shape = _without(self._dims.get(source), axis)
                        if shape is None:
                            open_questions.add(value)
                        elif len(shape) != len(declared) or any(shape[a] != d for a, d in claims.items()):
                            wrong.add(value)
        return wrong or open_questions

    def _read_graph(self, graph: ir.Graph, proto: onnx.GraphProto | None) -> None:
        for value in graph.inputs:
            if value not in self._doubtful:
                self.adopt(value)
            elif value.dtype is not None:
                self._types[value] = value.dtype
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
                inner = {}
                if proto is not None:
                    inner = {a.name: a.g for a in proto.node[index].attribute if a.type == onnx.AttributeProto.GRAPH}
                for attribute in node.attributes.values():
                    if attribute.type == ir.AttributeType.GRAPH:
                        self._read_graph(attribute.as_graph(), inner.get(attribute.name))

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
        def skeleton() -> onnx.ModelProto:
            proto = onnx.ModelProto(ir_version=max(model.ir_version, 8))
            proto.opset_import.extend(onnx.helper.make_opsetid(d, v) for d, v in function.opset_imports.items())
            _fill(proto.graph, function.graph, self._doubtful)
            for value, info in zip(function.inputs, proto.graph.input):
                if value in self._types:
                    info.CopyFrom(
                        onnx.helper.make_tensor_value_info(value.name, self._types[value], self._dims.get(value)))
            return proto

        self._settle(function.graph, skeleton)

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
                dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0
                else dim.dim_param or f"{value.name}.{axis}"
                for axis, dim in enumerate(info.shape.dim))


def _infer(proto: onnx.ModelProto) -> onnx.GraphProto | None:
    """The graph with what inference adds; None where it fails, and only what inputs and initializers say remains."""
    try:
        return onnx.shape_inference.infer_shapes(proto, strict_mode=False, data_prop=False).graph
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError):
        return None


def _declared(value: ir.Value) -> Dims | None:
    if value.shape is None:
        return None
    dims = (dim if isinstance(dim, int) else dim.value for dim in value.shape)
    return tuple(f"{value.name}.{axis}" if dim in (None, "") or (isinstance(dim, int) and dim < 0) else dim
                 for axis, dim in enumerate(dims))  # some tools write -1 for unknown


def _taken_values(node: ir.Node, body: ir.Graph) -> dict[ir.Value, list[tuple[ir.Value | None, int | None]]]:
    """For the inputs of a Loop or Scan body, where their values come from; of some, slices along an axis."""
    if node.domain == "" and node.op_type == "Loop":
        scalars, states = body.inputs[:2], list(zip(body.inputs[2:], node.inputs[2:], body.outputs[1:]))
        slices = []
    elif node.domain == "" and node.op_type == "Scan" and len(node.inputs) == len(body.inputs):
        count = len(node.inputs) - node.attributes["num_scan_inputs"].as_int()
        scalars, states = (), list(zip(body.inputs[:count], node.inputs[:count], body.outputs[:count]))
        given = node.attributes.get("scan_input_axes")
        axes = itertools.repeat(0) if given is None else given.as_ints()
        slices = list(zip(body.inputs[count:], node.inputs[count:], axes))
    else:
        return {}
    return ({value: [] for value in scalars}
            | {value: [(first, None), (after, None)] for value, first, after in states}
            | {value: [(whole, axis)] for value, whole, axis in slices})


def _without(dims: Dims | None, axis: int | None) -> Dims | None:
    if dims is None or axis is None:
        return dims
    return tuple(d for k, d in enumerate(dims) if k != axis % len(dims))


def skeleton(model: ir.Model, doubtful: Collection[ir.Value] = ()) -> onnx.ModelProto:
    """The model as a proto without value_info, without output shapes, without the data of its larger initializers."""
    proto = onnx.ModelProto(ir_version=max(model.ir_version, 8))
    for domain, version in model.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    _fill(proto.graph, model.graph, doubtful)
    for domain in sorted({node.domain for node in model.graph.all_nodes()} - model.opset_imports.keys() - {""}):
        proto.opset_import.add(domain=domain, version=1)  # inference gives up where one is missing
    most = max(MOST_EXPANDED, 2 * model.graph.num_nodes())
    if fit_to_expand(model, most, DEEPEST_CALLS):  # inference goes through every call
        proto.functions.extend(ir.serde.serialize_function(f) for f in model.functions.values())
    for function in proto.functions:
        del function.value_info[:]
    return proto


def contradiction(model: ir.Model) -> str | None:
    """How a model's types and shapes contradict what its operators take, in one line, or None; declarations that
    inference does without do not count."""
    try:
        onnx.shape_inference.infer_shapes(skeleton(model), check_type=True, strict_mode=True)
    except Exception as error:  # InferenceError, and what protobuf and onnx_ir have
        return " ".join(str(error).split())[:300]
    return None


def _fill(proto: onnx.GraphProto, graph: ir.Graph, doubtful: Collection[ir.Value]) -> None:
    proto.name = graph.name or "graph"
    for value in graph.inputs:
        proto.input.append(ir.serde.serialize_value(value))
        tensor = proto.input[-1].type.tensor_type
        if value in doubtful:
            tensor.ClearField("shape")
        if tensor.HasField("shape"):
            for axis, dim in enumerate(tensor.shape.dim):
                if dim.dim_value < 0 or not (dim.dim_param or dim.HasField("dim_value")):
                    dim.dim_param = f"{value.name}.{axis}"  # inference would invent a name of its own
    inputs = set(graph.inputs)
    for value in graph.initializers.values():
        tensor = value.const_value
        if value in inputs or tensor is None:
            continue
        if tensor.nbytes <= INLINE_BYTES:
            proto.initializer.append(ir.serde.serialize_tensor(tensor))
            proto.initializer[-1].name = value.name
        else:
            proto.initializer.add(name=value.name, data_type=int(tensor.dtype), dims=list(tensor.shape))
    for node in graph:
        made = ir.serde.serialize_node(node)
        for attribute in made.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                attribute.g.Clear()
                _fill(attribute.g, node.attributes[attribute.name].as_graph(), doubtful)
        proto.node.append(made)
    proto.output.extend(onnx.ValueInfoProto(name=value.name) for value in graph.outputs)
