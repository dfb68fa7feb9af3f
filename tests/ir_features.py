"""One small model for each thing that ONNX's protobufs can say, none of which a rewriting has any business to change.

`FEATURES` maps a name to a function that builds a model in which nothing is fused, on x [2, 3].
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from small_models import plain

NEWEST = onnx.defs.onnx_opset_version()
FEATURES: dict[str, Callable[[], onnx.ModelProto]] = {}
DATA = {"weights.bin": np.arange(12, dtype=np.float32).tobytes()}  # the files that external data refers to


def feature(make: Callable) -> Callable:
    FEATURES[make.__name__] = make
    return make


def base(*, opset: int = NEWEST, ir_version: int = onnx.IR_VERSION, **domains: int) -> onnx.ModelProto:
    model = plain()
    model.ir_version, model.opset_import[0].version = ir_version, opset
    for domain, version in domains.items():
        model.opset_import.add(domain=domain.replace("_", "."), version=version)
    return model


def value(name: str = "x", shape=(2, 3), dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def tensor(name: str, data=(1.0, 2.0, 3.0)) -> TensorProto:
    return numpy_helper.from_array(np.array(data, np.float32), name)


def sparse(name: str, dims=(2, 3)) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(helper.make_tensor(name, TensorProto.FLOAT, [1], [2.0]),
                                     helper.make_tensor("", TensorProto.INT64, [1], [1]), list(dims))


def body(*nodes: onnx.NodeProto, inputs=(), name: str = "body", output: str = "z", weights=()) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, list(inputs), [value(output)], list(weights))


def strange(message) -> None:
    """Give a message a field of a number that no version of ONNX has: 5000, text."""
    message.MergeFromString(b"\xc2\xb8\x02\x03new")


# --- tensors

def _holding(*tensors: TensorProto, **options) -> onnx.ModelProto:
    model = base(**options)
    model.graph.initializer.extend(tensors)
    return model


@feature
def sparse_initializer():
    model = base()
    model.graph.node.add(op_type="Add", input=["x", "sparse"], output=["sum"])
    model.graph.sparse_initializer.extend([sparse("sparse"), sparse("unread")])
    return model


@feature
def sparse_initializer_in_a_body():
    model = if_bodies()
    for attribute in model.graph.node[-1].attribute:
        attribute.g.sparse_initializer.append(sparse("s"))
    return model


@feature
def external_data():
    kept = TensorProto(name="kept", data_type=TensorProto.FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    entries = {"checksum": hashlib.sha1(DATA["weights.bin"]).hexdigest(), "length": 24, "location": "weights.bin",
               "basepath": "", "offset": 24}
    for key, entry in entries.items():
        kept.external_data.add(key=key, value=str(entry))
    kept.metadata_props.add(key="b", value="2")
    model = _holding(kept)
    inner = TensorProto()
    inner.CopyFrom(kept)
    inner.name = "inner"
    model.graph.node.append(helper.make_node("Constant", [], ["c"], value=inner))
    return model


@feature
def strings():
    model = _holding(helper.make_tensor("words", TensorProto.STRING, [3], [b"one", b"\xff\xfe", b""]))
    model.graph.initializer[0].metadata_props.add(key="k", value="v")
    return model


@feature
def overridable_initializers():
    model = _holding(tensor("bias"))
    model.graph.input.append(value("bias", (3,)))
    model.graph.node.add(op_type="Add", input=["x", "bias"], output=["sum"])
    return model


@feature
def tensors_of_every_type():
    """As raw data and, where there is a field for them, as numbers; with names, documentation and metadata."""
    model = base()
    for name, kind in TensorProto.DataType.items():
        if name in ("UNDEFINED", "STRING") or "FLOAT6" in name:
            continue
        size = max(1, helper.tensor_dtype_to_np_dtype(kind).itemsize * 4)
        if name.endswith(("INT4", "FLOAT4E2M1")):
            size = 2
        elif name.endswith("INT2"):
            size = 1
        raw = model.graph.initializer.add(name=f"raw {name}", data_type=kind, dims=[4], raw_data=bytes(size))
        raw.metadata_props.add(key="z", value="1")
        raw.metadata_props.add(key="a", value="2")
        raw.doc_string = "documentation"
        model.graph.initializer.append(helper.make_tensor(f"numbers {name}", kind, [4], np.array([0, 1, 0, 1])))
    return model


@feature
def large_weights_and_their_metadata():
    model = _holding(tensor("large", np.zeros((30, 30))), tensor("large, described", np.zeros((30, 30))))
    model.graph.value_info.append(value("large, described", (30, 30)))
    for weight in model.graph.initializer:
        weight.metadata_props.add(key="b", value="1")
        weight.metadata_props.add(key="a", value="1")
    return model


# --- types

def _typed(kind: onnx.TypeProto, **options) -> onnx.ModelProto:
    """A model with a value of a type among its inputs, outputs and value_info, handed through an operator unknown."""
    model = base(elsewhere=1, **options)
    model.graph.node.add(op_type="Through", domain="elsewhere", input=["given"], output=["between"])
    model.graph.node.add(op_type="Through", domain="elsewhere", input=["between"], output=["result"])
    for holder, name in ((model.graph.input, "given"), (model.graph.value_info, "between"),
                         (model.graph.output, "result")):
        holder.append(helper.make_value_info(name, kind, "documentation"))
    return model


def _types() -> dict[str, onnx.TypeProto]:
    plain_type, opaque = helper.make_tensor_type_proto(1, [2, "N", None]), onnx.TypeProto()
    opaque.opaque_type.domain, opaque.opaque_type.name = "elsewhere", "Blob"
    mapping = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(1, []))
    denoted = onnx.TypeProto()
    denoted.CopyFrom(helper.make_tensor_type_proto(1, [1, 3, "H", "W"], ["DATA_BATCH", "DATA_CHANNEL", "", "X"]))
    denoted.denotation = "IMAGE"
    return {
        "sequence": helper.make_sequence_type_proto(plain_type),
        "optional": helper.make_optional_type_proto(plain_type),
        "optional_sequence": helper.make_optional_type_proto(helper.make_sequence_type_proto(plain_type)),
        "map": mapping, "sequence_of_maps": helper.make_sequence_type_proto(mapping), "opaque": opaque,
        "sparse_tensor": helper.make_sparse_tensor_type_proto(1, [2, 3]), "denoted": denoted}


for _name, _type in _types().items():
    FEATURES[f"type_{_name}"] = functools.partial(_typed, _type)


@feature
def types_of_a_later_version_or_without_shape():
    model, later = base(elsewhere=1), onnx.TypeProto()
    later.tensor_type.elem_type = 90
    later.tensor_type.shape.dim.add(dim_value=3)
    model.graph.node.append(helper.make_node("Make", [], ["made"], domain="elsewhere", type=later))
    model.graph.node.append(helper.make_node("Make", ["made"], ["more"], domain="elsewhere"))
    model.graph.value_info.append(helper.make_value_info("made", later))
    model.graph.value_info.append(helper.make_value_info("more", helper.make_tensor_type_proto(1, None)))
    model.graph.value_info.append(helper.make_value_info("v0", helper.make_tensor_type_proto(0, [2, 3])))
    return model


@feature
def classifier_with_maps():
    """What scikit-learn's converters write."""
    model = base(ai_onnx_ml=3)
    model.graph.node.add(op_type="Identity", input=["y"], output=["scores"])
    model.graph.node.append(helper.make_node("ZipMap", ["scores"], ["zipped"], domain="ai.onnx.ml",
                                             classlabels_int64s=[0, 1, 2]))
    model.graph.output.append(helper.make_value_info("zipped", _types()["sequence_of_maps"]))
    return model


# --- functions

@feature
def functions():
    """With overloads, attributes with and without defaults, references to them, value_info, calls of each other."""
    model = base(own=1)
    alpha = helper.make_node("LeakyRelu", ["a"], ["leaky"])
    reference = alpha.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, doc_string="of the caller")
    reference.ref_attr_name = "alpha"
    imports = [helper.make_opsetid("", NEWEST), helper.make_opsetid("own", 1)]
    for overload in ("", "two", "three"):
        made = model.functions.add(domain="own", name="F", overload=overload, doc_string=overload,
                                   input=["a", "unused"], output=["b"], attribute=["required"])
        made.attribute_proto.append(helper.make_attribute("alpha", 0.25))
        made.node.extend([alpha, helper.make_node("G", ["leaky"], ["b"], domain="own", name="g")])
        made.opset_import.extend(imports)
        made.value_info.append(value("leaky"))
        made.metadata_props.add(key="z", value="1")
        made.metadata_props.add(key="a", value="2")
        model.graph.node.append(helper.make_node("F", ["x", ""], [f"f{overload}"], domain="own", required=1,
                                                 overload=overload))
    model.functions.append(helper.make_function("own", "G", ["a"], ["b"], [
        helper.make_node("Sin", ["a"], ["b"])], imports))
    return model


@feature
def value_info_of_functions_before_they_had_one():
    """In the main graph, by names that PyTorch's exporter made up."""
    model = base(ir_version=9, opset=18, own=1)
    model.functions.append(helper.make_function("own", "F", ["a"], ["c"], [
        helper.make_node("Sin", ["a"], ["b"]), helper.make_node("Cos", ["b"], ["c"])], [helper.make_opsetid("", 18)]))
    model.graph.node.append(helper.make_node("F", ["x"], ["f"], domain="own"))
    model.graph.value_info.extend([value("own::F/b"), value("f"), value("own::F/a"), value("gone::F/b")])
    return model


# --- graphs in graphs

@feature
def if_bodies():
    """Both branches use the same names, for values, nodes and weights, and read what lies outside."""
    model = base()
    model.graph.input.append(value("c", [], TensorProto.BOOL))
    branches = [body(helper.make_node("Add", ["x", "w"], ["inner"], "same"),
                     helper.make_node(op, ["inner"], ["z"], "same too"), weights=[tensor("w", data)])
                for op, data in (("Sin", (1, 2, 3)), ("Cos", (4, 5, 6)))]
    for branch in branches:
        branch.value_info.extend([value("inner"), value("w", (3,))])
        branch.doc_string = "documentation"
        branch.metadata_props.add(key="k", value="v")
    model.graph.node.append(helper.make_node("If", ["c"], ["w_if"], "if", then_branch=branches[0],
                                             else_branch=branches[1]))
    return model


@feature
def loop_and_scan():
    """Nested, with bodies that shadow no name but share all of them."""
    model = base()
    flag = TensorProto.BOOL
    inner = helper.make_graph([helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Identity", ["t"], ["u"])],
                              "scan", [value("s", (3,)), value("e", (3,))], [value("t", (3,)), value("u", (3,))])
    scan = helper.make_node("Scan", ["row", "x"], ["final", "rows"], num_scan_inputs=1, body=inner)
    loop = helper.make_graph(
        [scan, helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["final"], ["next"])],
        "loop", [value("i", [], TensorProto.INT64), value("go", [], flag), value("row", (3,))],
        [value("on", [], flag), value("next", (3,)), value("rows")])
    model.graph.initializer.extend([numpy_helper.from_array(np.array(2), "n"), tensor("start")])
    model.graph.node.append(helper.make_node("Loop", ["n", "", "start"], ["last", "all"], body=loop))
    return model


@feature
def training_info():
    model = base()
    info = model.training_info.add()
    info.initialization.CopyFrom(body(helper.make_node("Identity", ["x"], ["z"])))
    info.algorithm.CopyFrom(body(helper.make_node("Neg", ["x"], ["z"])))
    info.update_binding.add(key="w", value="z")
    return model


# --- nodes and their attributes

@feature
def empty_inputs_and_outputs():
    model = _holding(tensor("high", 0.5), tensor("w", np.ones((1, 8, 3))), tensor("r", np.ones((1, 8, 2))))
    model.graph.node.append(helper.make_node("Clip", ["x", "", "high"], ["clipped"]))
    model.graph.node.append(helper.make_node("Clip", ["x", "", ""], ["free"]))
    model.graph.node.append(helper.make_node("Dropout", ["x", "", ""], ["dropped", ""]))
    model.graph.node.append(helper.make_node("Unsqueeze", ["x", "axes"], ["sequence"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axes"))
    model.graph.node.append(helper.make_node("LSTM", ["sequence", "w", "r", "", "", "", "", ""], ["", "h", ""],
                                             hidden_size=2))
    return model


@feature
def attributes_of_every_type():
    kind = onnx.AttributeProto
    made = [helper.make_attribute(name, data) for name, data in (
        ("f", 1.5), ("i", -1), ("s", "text"), ("t", tensor("t")), ("g", body(helper.make_node("Sin", ["x"], ["z"]))),
        ("fs", [1.5, float("nan")]), ("is", [1, 2]), ("ss", ["a", ""]), ("ts", [tensor("a"), tensor("b")]),
        ("gs", [body(helper.make_node("Cos", ["x"], ["z"]), name="same")] * 2), ("st", sparse("st")),
        ("sts", [sparse("a"), sparse("b")]), ("tp", _types()["map"]), ("tps", [_types()["denoted"], _types()["map"]]),
        ("latin", b"\xe9"), ("latins", [b"fine", b"\xe9"]))]
    made += [kind(name="no ints", type=kind.INTS), kind(name="no floats", type=kind.FLOATS),
             kind(name="no text", type=kind.STRING), kind(name="no types", type=kind.TYPE_PROTOS)]
    model = base(elsewhere=1)
    for index, attribute in enumerate(made):  # one a node: some are hidden from onnx_ir with their node
        node = model.graph.node.add(op_type="Any", domain="elsewhere", input=["x"], output=[f"a{index}"])
        node.attribute.append(attribute)
        node.attribute[0].doc_string = "documentation"
    return model


@feature
def sparse_constant():
    model = base()
    model.graph.node.append(helper.make_node("Constant", [], ["c"], sparse_value=sparse("")))
    model.graph.node.add(op_type="Add", input=["x", "c"], output=["sum"])
    return model


@feature
def placed_on_devices():
    model = base()
    model.configuration.add(name="two", num_devices=2, device=["a", "b"])
    placed = model.graph.node[0].device_configurations.add(configuration_id="two", pipeline_stage=1)
    spec = placed.sharding_spec.add(tensor_name="x", device=[0, 1])
    dim = spec.sharded_dim.add(axis=0)
    dim.simple_sharding.add(dim_value=2, num_shards=2)
    return model


@feature
def names_that_are_missing_or_repeated():
    model = base()
    for index in range(3):
        model.graph.node.add(op_type="Neg", input=["x"], output=[f"n{index}"], name="same" if index else "")
    model.graph.node.add(op_type="Sink", domain="elsewhere", input=["x"])
    model.graph.node.add(op_type="Sink", domain="elsewhere", input=["y"])
    model.opset_import.add(domain="elsewhere", version=1)
    return model


# --- words about the model

@feature
def quantization_annotations():
    model = _holding(tensor("scale", 0.1), tensor("weights"))
    for name in ("weights", "v0", "y", "x", "nobody"):
        annotation = model.graph.quantization_annotation.add(tensor_name=name)
        annotation.quant_parameter_tensor_names.add(key="ZERO_POINT_TENSOR", value="scale")
        annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
    return model


@feature
def documentation_and_metadata_everywhere():
    model = _holding(tensor("weights"))
    model.producer_name, model.producer_version, model.domain, model.model_version = "p", "1", "d", 7
    model.graph.value_info.extend([value("weights", (3,)), value("v0"), value("gone")])
    holders = [model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output, *model.graph.initializer,
               *model.graph.value_info]
    for index, holder in enumerate(holders):
        holder.doc_string = f"documentation {index}\n\u00e9"
        for key in ("z", "a", "", "m"):
            holder.metadata_props.add(key=key, value=f"{key}{index}")
    return model


@feature
def fields_that_are_set_and_empty():
    model = base()
    model.producer_name = model.producer_version = model.domain = model.doc_string = ""
    model.model_version = 0
    model.graph.doc_string = ""
    model.opset_import.add(domain="ai.onnx.ml", version=3)
    for node in model.graph.node:
        node.name = node.domain = node.doc_string = node.overload = ""
    model.graph.value_info.add(name="v0").type.SetInParent()
    model.graph.value_info.add(name="only a name")
    model.graph.input[0].doc_string = ""
    model.graph.input[0].type.denotation = ""
    model.graph.quantization_annotation.add(tensor_name="v0")
    return model


@feature
def the_domain_spelled_out():
    model = base()
    model.opset_import[0].domain = "ai.onnx"
    return model


def _strange_version() -> dict[str, Callable[[], onnx.ModelProto]]:
    """Models with an unknown field in one kind of message."""
    def make(pick: Callable) -> onnx.ModelProto:
        model = functions()
        described = documentation_and_metadata_everywhere().graph
        model.graph.initializer.extend([*described.initializer, tensor("large", np.zeros((30, 30)))])
        model.graph.value_info.extend(described.value_info)
        model.graph.node.extend([helper.make_node("Constant", [], ["c"], value=tensor("c")),
                                 if_bodies().graph.node[-1]])
        model.graph.input.append(value("c_if", [], TensorProto.BOOL))
        model.graph.node[-1].input[0] = "c_if"
        strange(pick(model))
        return model

    kinds = {
        "model": lambda m: m, "graph": lambda m: m.graph, "node": lambda m: m.graph.node[0],
        "initializer": lambda m: m.graph.initializer[0], "large_initializer": lambda m: m.graph.initializer[1],
        "constant": lambda m: m.graph.node[-2].attribute[0].t, "attribute": lambda m: m.graph.node[-2].attribute[0],
        "body": lambda m: m.graph.node[-1].attribute[0].g,
        "node_in_a_body": lambda m: m.graph.node[-1].attribute[1].g.node[0],
        "input": lambda m: m.graph.input[0], "type": lambda m: m.graph.input[0].type,
        "shape": lambda m: m.graph.output[0].type.tensor_type.shape,
        "dim": lambda m: m.graph.output[0].type.tensor_type.shape.dim[1], "value_info": lambda m: m.graph.value_info[1],
        "opset_import": lambda m: m.opset_import[0], "function": lambda m: m.functions[1],
        "node_in_a_function": lambda m: m.functions[1].node[0],
        "metadata": lambda m: m.graph.value_info[1].metadata_props[0]}
    return {f"unknown_field_in_{name}": functools.partial(make, pick) for name, pick in kinds.items()}


FEATURES |= _strange_version()


# --- versions

FEATURES |= {f"ir_version_{version}": functools.partial(base, ir_version=version, opset=min(NEWEST, 21))
             for version in range(3, onnx.IR_VERSION + 1)}
FEATURES |= {f"opset_{version}": functools.partial(base, opset=version, ir_version=8 if version < 21 else 10)
             for version in range(7, NEWEST + 1)}
