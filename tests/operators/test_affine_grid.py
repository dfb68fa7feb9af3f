"""AffineGrid's fallback function against its reference, and the reference against PyTorch."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from patterns.operators import OPERATORS
from patterns.operators.affine_grid import AFFINE_GRID, affine_grid
from rewriter.functions import attach

NEWEST = onnx.defs.onnx_opset_version()
TOLERANCE = {np.float16: 2e-3, np.float32: 5e-7, np.float64: 2e-15}  # one rounding to T of values below 4


def thetas(batch, d, dtype=np.float32, seed=0):
    noise = np.random.default_rng(seed).uniform(-0.5, 0.5, (batch, d, d + 1))
    return (np.eye(d, d + 1) + noise).astype(dtype)


def call(spatial, *, batch=2, size0=1, align_corners=0, dtype=np.float32, seed=0):
    theta = thetas(batch, len(spatial), dtype, seed)
    operands = {"theta": theta, "size": np.array([size0, 5, *spatial])}
    return "AffineGrid", operands, {"align_corners": align_corners}


def assert_equals_reference(run, model, feeds, calls, **options):
    onnx.checker.check_model(model, full_check=True)
    for got, (_, operands, attributes) in zip(run(model, feeds, **options).values(), calls):
        want, dtype = affine_grid(**operands, **attributes), operands["theta"].dtype
        assert got.dtype == dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE[dtype.type])


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("spatial", [(7, 9), (1, 9), (5, 1), (1, 1), (4, 5, 6), (1, 5, 6), (3, 1, 1)])
def test_reference_is_pytorch(spatial, align_corners):
    torch = pytest.importorskip("torch")
    theta = thetas(2, len(spatial), np.float64)
    want = torch.nn.functional.affine_grid(torch.from_numpy(theta), (2, 1, *spatial), align_corners=bool(align_corners))
    np.testing.assert_allclose(affine_grid(theta, (1, 1, *spatial), align_corners=align_corners), want, atol=1e-14)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("opset", range(AFFINE_GRID.since, NEWEST + 1))
def test_every_opset(assemble, run, opset, dynamic):
    for spatial in ((7, 9), (4, 5, 6)):
        for align_corners in (0, 1):
            calls = [call(spatial, align_corners=align_corners)]
            assert_equals_reference(run, *assemble(calls, opset, dynamic=dynamic), calls)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("spatial", [(7, 9), (1, 9), (5, 1), (1, 1), (4, 5, 6), (1, 5, 6), (3, 1, 1)])
def test_dtypes_and_axes_of_length_1(assemble, run, spatial, dtype, dynamic):
    for align_corners in (0, 1):
        calls = [call(spatial, align_corners=align_corners, dtype=dtype)]
        assert_equals_reference(run, *assemble(calls, 18, dynamic=dynamic), calls)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("batch", "size0"), [(1, 1), (3, 1), (1, 3), (3, 3), (0, 1), (0, 0)])
@pytest.mark.parametrize("spatial", [(4, 6), (2, 3, 4)])
def test_batch_rule(assemble, run, spatial, batch, size0, dynamic):
    calls = [call(spatial, batch=batch, size0=size0)]
    model, feeds = assemble(calls, 18, dynamic=dynamic)
    assert_equals_reference(run, model, feeds, calls)
    assert_equals_reference(run, model, feeds, calls, optimize=False)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("opset", [11, 18, NEWEST])
def test_uses_of_every_kind_in_one_model(assemble, run, opset, dynamic):
    calls = [
        call(spatial, align_corners=align_corners, dtype=dtype, seed=index)
        for index, (spatial, align_corners, dtype) in enumerate([
            ((4, 5), 0, np.float32), ((4, 5), 1, np.float16), ((6, 5), 1, np.float64), ((2, 4, 5), 1, np.float32),
            ((3, 1, 5), 0, np.float16), ((3, 4, 5), 0, np.float64)])
    ]
    model, feeds = assemble(calls, opset, dynamic=dynamic)
    assert len(model.functions) == 1
    assert_equals_reference(run, model, feeds, calls)


def test_bfloat16(run):
    theta = thetas(2, 2)
    nodes = [
        helper.make_node("Cast", ["theta"], ["narrow"], to=TensorProto.BFLOAT16),
        helper.make_node("AffineGrid", ["narrow", "size"], ["grid"], domain="custom.ops", align_corners=1),
        helper.make_node("Cast", ["grid"], ["wide"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("theta", TensorProto.FLOAT, theta.shape)],
        [helper.make_tensor_value_info("wide", TensorProto.FLOAT, [2, 5, 6, 2])],
        [onnx.numpy_helper.from_array(np.array([1, 1, 5, 6]), "size")],
        value_info=[helper.make_tensor_value_info("grid", TensorProto.BFLOAT16, [2, 5, 6, 2])])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("custom.ops", 1)]
    model = ir.serde.deserialize_model(helper.make_model(graph, opset_imports=imports, ir_version=8))
    attach(model, OPERATORS)
    rounded = ir.tensor(theta).numpy().view(np.uint32) + 0x8000 & 0xFFFF0000  # no ties among these
    want = affine_grid(rounded.astype(np.uint32).view(np.float32), (1, 1, 5, 6), align_corners=1)
    got = run(ir.serde.serialize_model(model), {"theta": theta})["wide"]
    np.testing.assert_allclose(got, want, rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("opset", [11, 18, NEWEST])
def test_onnx_reference_evaluator(assemble, opset, align_corners):
    for spatial in ((3, 4), (2, 3, 4)):
        calls = [call(spatial, align_corners=align_corners)]
        model, feeds = assemble(calls, opset)
        (got,) = ReferenceEvaluator(model).run(None, feeds)
        np.testing.assert_allclose(got, affine_grid(**calls[0][1], **calls[0][2]), rtol=0, atol=5e-7)


@pytest.mark.parametrize("spatial", [(4, 5), (3, 4, 5)])
def test_shape_inference_passes_through(assemble, spatial):
    model, _ = assemble([call(spatial, batch=2)], 18)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    dims = inferred.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_value or d.dim_param for d in dims] == ["n0", *spatial, len(spatial)]


def test_constant_size_leaves_four_nodes(assemble, tmp_path):
    """Everything but theta's part folds when ONNX Runtime loads the model."""
    for spatial in ((64, 48), (4, 5, 6)):
        model, _ = assemble([call(spatial)], 18)
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        left = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
        assert left == ["FusedMatMul", "Reshape", "MatMul", "Reshape"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_non_finite_theta_reaches_its_coordinate_only(assemble, run, column, value):
    kind, operands, attributes = call((5, 7), batch=2)
    operands["theta"][1, 0, column] = value
    model, feeds = assemble([(kind, operands, attributes)], 18)
    got, want = run(model, feeds)["y0"], affine_grid(**operands, **attributes)
    assert not np.isfinite(got[1, ..., 0]).any() and not np.isfinite(want[1, ..., 0]).any()
    np.testing.assert_allclose(got[0], want[0], atol=5e-7)
    np.testing.assert_allclose(got[1, ..., 1], want[1, ..., 1], atol=5e-7)


def test_a_huge_theta_follows_the_formula(assemble, run):
    kind, operands, attributes = call((4, 6), batch=1)
    operands["theta"][0, 0] = 1e30, -1e30, 1
    model, feeds = assemble([(kind, operands, attributes)], 18)
    np.testing.assert_allclose(run(model, feeds)["y0"], affine_grid(**operands, **attributes), rtol=1e-5, atol=1e24)


def test_the_same_function_for_the_same_uses(assemble):
    calls = [call((4, 5)), call((3, 4, 5), dtype=np.float16)]
    first, again = (assemble(calls, 18)[0].SerializeToString(deterministic=True) for _ in range(2))
    assert first == again


def test_helper_attributes_only_where_needed(assemble):
    model, _ = assemble([call((4, 5)), call((6, 7))], 18)
    assert [a.name for a in model.graph.node[0].attribute] == ["align_corners"]
    assert "Cast" not in {n.op_type for n in model.functions[0].node if "theta" in n.input}
    model, _ = assemble([call((4, 5)), call((4, 5), dtype=np.float16)], 18)
    assert [{a.name: a.i for a in node.attribute} for node in model.graph.node] == [
        {"align_corners": 0, "dtype": TensorProto.FLOAT}, {"align_corners": 0, "dtype": TensorProto.FLOAT16}]


def test_the_dtype_survives_tools_that_drop_value_info(assemble):
    model, _ = assemble([call((4, 5), dtype=np.float16)], 18)
    again = ir.serde.deserialize_model(model)
    for value in (*again.graph.inputs, *again.graph.outputs):
        value.type = value.shape = None
    function = AFFINE_GRID.define(list(again.graph), 18)
    assert onnx.printer.to_text(function) == onnx.printer.to_text(model.functions[0])
