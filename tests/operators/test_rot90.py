"""Rot90 and CustomRotScale: references against numpy and torch, bodies in ONNX Runtime and onnx's evaluator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from patterns.operators.rot90 import CUSTOM_ROT_SCALE, ROT90, axes_of, dims_of, rot90, rot_scale

NEWEST = onnx.defs.onnx_opset_version()
RNG = np.random.default_rng(3)
# one model each: (turns, plane, shape, dtype, factor) of every node
USES = {
    "k1": [(1, (2, 3), (1, 3, 4, 5), np.float32, 0.25)],
    "k2": [(2, (2, 3), (1, 3, 4, 5), np.float16, 1.5)],
    "k3": [(3, (0, 1), (4, 5), np.float64, -0.125)],
    "k1 ranks": [(1, (0, 1), (4, 5), np.float32, 2.0), (1, (1, 3), (2, 3, 4, 5), np.float16, 3.0)],
    "k2 ranks": [(2, (0, 2), (4, 5, 2), np.float32, 2.0), (2, (3, 4), (2, 3, 1, 4, 5), np.float64, 0.1)],
    "mixed": [(1, (0, 1), (4, 5), np.float32, 2.0), (2, (1, 3), (2, 3, 4, 5), np.float16, 3.0),
              (3, (2, 4), (2, 1, 3, 4, 5), np.float64, 0.5), (2, (0, 2), (2, 3, 4), np.float32, 1.0),
              (4, (1, 2), (2, 3, 4), np.float32, 1.0), (3, (0, 1), (0, 3), np.float32, 1.0)],
    "any attributes": [(-1, (1, 0), (4, 5), np.float32, 2.0), (6, (-1, -3), (2, 3, 4), np.float32, 3.0),
                       (5, (-2, -1), (2, 3, 4), np.float32, 3.0)],
}


def build(uses, opset, operator):
    """A model with one node for each use, and the function generated for all of them."""
    nodes, inputs, outputs, feeds, want = [], [], [], {}, {}
    for i, (turns, plane, shape, dtype, factor) in enumerate(uses):
        factor = float(np.float32(factor))
        x = (RNG.standard_normal(shape) * 10).astype(dtype)
        if operator is ROT90:
            attributes = {"k": turns, "axes": plane}
        else:
            attributes = {"rotations": turns, "scale_factor": factor, "dims": f"{plane[0]},{plane[1]}"}
        nodes.append(helper.make_node(operator.name, [f"x{i}"], [f"y{i}"], domain="custom.ops", **attributes))
        feeds[f"x{i}"], want[f"y{i}"] = x, operator.reference(x, **attributes)
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        inputs.append(helper.make_tensor_value_info(f"x{i}", kind, shape))
        outputs.append(helper.make_tensor_value_info(f"y{i}", kind, want[f"y{i}"].shape))
    model = ir.from_proto(helper.make_model(
        helper.make_graph(nodes, "uses", inputs, outputs), ir_version=8,
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("custom.ops", 1)]))
    function = ir.serde.deserialize_function(operator.define(list(model.graph), opset))
    model.functions[function.identifier()] = function
    return model, feeds, want


def session(model: onnx.ModelProto, path=None) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if path:
        options.optimized_model_filepath = str(path)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("operator", [ROT90, CUSTOM_ROT_SCALE], ids=lambda o: o.name)
@pytest.mark.parametrize("uses", USES)
@pytest.mark.parametrize("opset", range(ROT90.since, NEWEST + 1))
def test_one_body_serves_all_uses(operator, uses, opset):
    model, feeds, want = build(USES[uses], opset, operator)
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    assert [o.version for f in proto.functions for o in f.opset_import] == [opset]
    runs = [dict(zip(want, session(proto).run(None, feeds)))]
    if opset > 11 or len(USES[uses]) == 1:  # onnx's evaluator cannot follow Constant(value=@attribute), opset 11's only
        runs.append(dict(zip(want, ReferenceEvaluator(proto).run(None, feeds))))
    for got in runs:
        for name, array in want.items():
            assert got[name].dtype == array.dtype
            np.testing.assert_array_equal(got[name], array)


@pytest.mark.parametrize(("turns", "kept"), [
    ((1,), ["Transpose", "Slice"]), ((2,), ["Slice"]), ((3,), ["Slice", "Transpose"]),
    ((1, 2, 3), ["Slice", "Slice", "Slice", "Transpose", "Transpose"])])
def test_no_turn_pays_for_the_others(turns, kept, tmp_path):
    """What ONNX Runtime executes: a Transpose and a flip, or a flip alone, also at the borders of the graph."""
    model, *_ = build([(k, (2, 3), (1, 3, 4, 5), np.float32, 1.0) for k in turns], 18, ROT90)
    session(ir.to_proto(model), tmp_path / "optimized.onnx")
    left = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert (left if len(turns) == 1 else sorted(left)) == kept


def test_functions_give_shapes_and_inline():
    model, feeds, want = build(USES["mixed"], 18, CUSTOM_ROT_SCALE)
    for value in model.graph.outputs:
        value.shape = None
    proto = ir.to_proto(model)
    inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    for value in inferred.graph.output:
        assert tuple(d.dim_value for d in value.type.tensor_type.shape.dim) == want[value.name].shape
    inlined = onnx.inliner.inline_local_functions(proto)
    assert not inlined.functions and all(node.domain == "" for node in inlined.graph.node)
    for got, array in zip(session(inlined).run(None, feeds), want.values()):
        np.testing.assert_array_equal(got, array)


def test_helper_attributes_are_those_the_body_reads():
    """A model that loses its other turns gets the simple body back; the same uses give the same bytes."""
    model, *_ = build(USES["mixed"], 18, ROT90)
    node = model.graph[0]
    assert {"perm_1", "steps_2"} <= node.attributes.keys()
    alone = ROT90.define([node], 18)
    assert set(node.attributes) == {"k", "axes", "perm", "flip"} == set(alone.attribute)
    assert ROT90.define([node], 18).SerializeToString() == alone.SerializeToString()
    assert set(node.attributes) == {"k", "axes", "perm", "flip"}


@pytest.mark.parametrize("operator", [ROT90, CUSTOM_ROT_SCALE], ids=lambda o: o.name)
def test_opset_11_bodies_hold_what_all_nodes_share(operator):
    model, *_ = build(USES["k1 ranks"], 11, operator)
    assert "flip_tensor" in model.graph[0].attributes
    same, *_ = build([USES["k1"][0]] * 2, 11, operator)
    assert "flip_tensor" not in same.graph[0].attributes
    assert not any(a.ref_attr_name for f in ir.to_proto(same).functions for n in f.node if n.op_type == "Constant"
                   for a in n.attribute)


@pytest.mark.parametrize("k", [-1, 0, 1, 2, 3, 5])
def test_references_against_torch(k):
    torch = pytest.importorskip("torch")
    x = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    want = torch.rot90(torch.from_numpy(x), k, (1, 3)).numpy()
    np.testing.assert_array_equal(rot90(x, k=k, axes=(1, 3)), want)
    np.testing.assert_array_equal(rot_scale(x, rotations=k, scale_factor=0.3, dims="1,width"), want * np.float32(0.3))


def test_the_factor_is_rounded_to_the_dtype_first():
    x = np.array([[3.0]], ml_dtypes.bfloat16)
    got = rot_scale(x, rotations=2, scale_factor=0.1, dims="height,width")
    assert got[0, 0] == (np.float64(ml_dtypes.bfloat16(0.1)) * 3).astype(ml_dtypes.bfloat16)


def test_elements_are_moved_bit_for_bit():
    bits = np.array([[0x7FC00001, 0x80000000], [0xFFC12345, 1]], np.uint32)
    model, *_ = build([(1, (0, 1), (2, 2), np.float32, 1.0)], 18, ROT90)
    (got,) = session(ir.to_proto(model)).run(None, {"x0": bits.view(np.float32)})
    np.testing.assert_array_equal(got.view(np.uint32), np.rot90(bits))


def test_dims():
    assert axes_of("height,width") == (-2, -1) and axes_of("depth, 0") == (-3, 0)
    assert dims_of((2, 3), 4) == "height,width" and dims_of((1, 2), 4) == "1,2"
    for wrong in ("height", "height,width,depth", "rows,columns", ""):
        with pytest.raises(ValueError, match="not two comma separated axes"):
            axes_of(wrong)


def test_a_node_of_unknown_rank_is_an_error():
    node = ir.Node("custom.ops", "Rot90", [ir.Value(name="x")], [ir.AttrInt64("k", 1), ir.AttrInt64s("axes", (0, 1))],
                   outputs=[ir.Value(name="y")])
    with pytest.raises(ValueError, match="rank of y is unknown"):
        ROT90.define([node], 18)
