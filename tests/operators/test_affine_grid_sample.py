"""AffineGridSample's fallback function against its reference, and the reference against PyTorch."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from patterns.operators import OPERATORS
from patterns.operators.affine_grid_sample import AFFINE_GRID_SAMPLE, affine_grid, affine_grid_sample
from patterns.operators.sampling import grid_sample
from rewriter.functions import attach

NEWEST = onnx.defs.onnx_opset_version()
MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")
EVERY = list(itertools.product(MODES, PADDINGS))
UNTIL_19 = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}
TOLERANCE = {np.float16: 4e-3, np.float32: 1e-5, np.float64: 1e-13}


def call(spatial=(7, 9), source=(6, 5), *, mode="linear", padding_mode="zeros", align_corners=0, grid_align_corners=0,
         dtype=np.float32, opset=20, batch=2, theta_batch=None, size0=1, seed=0):
    """Mode in the spelling of opset 20; a theta whose coordinates avoid ties."""
    rng, d = np.random.default_rng(seed), len(spatial)
    theta_batch = batch if theta_batch is None else theta_batch
    theta = 1.2 * np.eye(d, d + 1) + rng.uniform(-0.5, 0.5, (theta_batch, d, d + 1))
    operands = {"x": rng.standard_normal((batch, 3, *source)).astype(dtype), "theta": theta.astype(dtype),
                "size": np.array([size0, 1, *spatial])}
    return "AffineGridSample", operands, {
        "mode": UNTIL_19[mode] if opset < 20 else mode, "padding_mode": padding_mode, "align_corners": align_corners,
        "grid_align_corners": grid_align_corners}


def assert_equals_reference(run, model, feeds, calls):
    onnx.checker.check_model(model, full_check=True)
    for got, (_, operands, attributes) in zip(run(model, feeds).values(), calls):
        want, dtype = affine_grid_sample(**operands, **attributes), operands["x"].dtype
        assert got.dtype == dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE[dtype.type], err_msg=str(attributes))


@pytest.mark.parametrize(("mode", "padding_mode"), EVERY)
def test_reference_is_pytorch(mode, padding_mode):
    torch = pytest.importorskip("torch")
    for d, align_corners, length in itertools.product((2, 3), (0, 1), (4, 1)):
        if d == 3 and mode == "cubic":
            continue
        rng = np.random.default_rng(d)
        x, grid = rng.standard_normal((2, 3, length, *(5, 6)[: d - 1])), rng.uniform(-2.2, 2.2, (2, *(4, 7, 5)[:d], d))
        want = torch.nn.functional.grid_sample(torch.from_numpy(x), torch.from_numpy(grid), UNTIL_19[mode],
                                               padding_mode, bool(align_corners))
        got = grid_sample(x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("opset", range(AFFINE_GRID_SAMPLE.since, NEWEST + 1))
def test_every_opset(assemble, run, opset, dynamic):
    for spatial, source in (((7, 9), (6, 5)), ((4, 5, 6), (3, 4, 5))):
        calls = [call(spatial, source, align_corners=1, opset=opset)]
        assert_equals_reference(run, *assemble(calls, opset, dynamic=dynamic), calls)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("opset", [16, 20, NEWEST])
@pytest.mark.parametrize(("mode", "padding_mode"), EVERY)
def test_modes_paddings_and_both_conventions_on_either_side(assemble, run, mode, padding_mode, opset, dynamic):
    for d, a, b in itertools.product((2, 3), (0, 1), (0, 1)):
        if d == 2 or mode != "cubic":
            calls = [call((7, 9, 5)[:d], (6, 5, 4)[:d], mode=mode, padding_mode=padding_mode, align_corners=a,
                          grid_align_corners=b, opset=opset, seed=d)]
            assert_equals_reference(run, *assemble(calls, opset, dynamic=dynamic), calls)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize(("mode", "padding_mode"), EVERY)
def test_dtypes(assemble, run, mode, padding_mode, dtype):
    for align_corners, dynamic in itertools.product((0, 1), (False, True)):
        if mode != "nearest" or dtype != np.float16:  # there a tie may fall either way
            calls = [call(mode=mode, padding_mode=padding_mode, align_corners=align_corners, dtype=dtype)]
            assert_equals_reference(run, *assemble(calls, 20, dynamic=dynamic), calls)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_a_float32_theta_with_another_image(assemble, run, dtype):
    calls = [call(align_corners=1, dtype=dtype)]
    calls[0][1]["theta"] = calls[0][1]["theta"].astype(np.float32)
    assert_equals_reference(run, *assemble(calls, 20), calls)


def test_bfloat16(run):
    _, operands, attributes = call(align_corners=1)
    x = np.round(operands["x"] * 8) / 8  # exact in bfloat16
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], to=TensorProto.BFLOAT16),
        helper.make_node("AffineGridSample", ["narrow", "theta", "size"], ["y"], domain="custom.ops", **attributes),
        helper.make_node("Cast", ["y"], ["wide"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(k, TensorProto.FLOAT, operands[k].shape) for k in ("x", "theta")],
        [helper.make_tensor_value_info("wide", TensorProto.FLOAT, [2, 3, 7, 9])],
        [onnx.numpy_helper.from_array(operands["size"], "size")],
        value_info=[helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [2, 3, 7, 9])])
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("custom.ops", 1)]
    model = ir.serde.deserialize_model(helper.make_model(graph, opset_imports=imports, ir_version=8))
    attach(model, OPERATORS)
    got = run(ir.serde.serialize_model(model), {"x": x, "theta": operands["theta"]})["wide"]
    np.testing.assert_allclose(got, affine_grid_sample(x, operands["theta"], operands["size"], **attributes),
                               rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize("padding_mode", PADDINGS)
@pytest.mark.parametrize(("spatial", "source"), [
    ((1, 9), (6, 5)), ((5, 1), (6, 1)), ((7, 9), (1, 1)), ((1, 1), (1, 5))])
def test_axes_of_length_1(assemble, run, spatial, source, padding_mode):
    for mode, a, b in itertools.product(("linear", "nearest"), (0, 1), (0, 1)):
        calls = [call(spatial, source, mode=mode, padding_mode=padding_mode, align_corners=a, grid_align_corners=b)]
        assert_equals_reference(run, *assemble(calls, 20), calls)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("batch", "theta_batch", "size0"), [(3, 3, 1), (3, 1, 3), (3, 3, 3), (1, 1, 1), (0, 0, 1)])
def test_batch_rule(assemble, run, batch, theta_batch, size0, dynamic):
    for padding_mode in PADDINGS:
        calls = [call(batch=batch, theta_batch=theta_batch, size0=size0, padding_mode=padding_mode, align_corners=1)]
        assert_equals_reference(run, *assemble(calls, 20, dynamic=dynamic), calls)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("uses", [
    [{"align_corners": 1}, {"align_corners": 0}],
    [{"padding_mode": "border", "align_corners": 1}, {"padding_mode": "border"}],
    [{"padding_mode": "reflection", "align_corners": 1}, {"padding_mode": "reflection"}],
    [{"padding_mode": "border"}, {"align_corners": 1}, {"padding_mode": "reflection"}],
    [{"align_corners": 1}, {"align_corners": 1, "mode": "nearest"}, {"align_corners": 1, "mode": "cubic"}],
    [{"align_corners": 1}, {"mode": "nearest"}, {"padding_mode": "border", "mode": "cubic"}],
    [{"mode": "nearest", "align_corners": 1}, {"mode": "nearest"}, {"padding_mode": "border", "align_corners": 1}],
    [{"align_corners": 1}, {"align_corners": 1, "spatial": (3, 4, 5), "source": (4, 5, 6)}],
    [{"align_corners": 1, "dtype": np.float16}, {"padding_mode": "border", "dtype": np.float64}, {"mode": "cubic"}],
])
def test_uses_of_every_kind_in_one_model(assemble, run, uses, dynamic):
    calls = [call(**use, seed=index) for index, use in enumerate(uses)]
    model, feeds = assemble(calls, 20, dynamic=dynamic)
    assert len(model.functions) == 1
    assert_equals_reference(run, model, feeds, calls)


@pytest.mark.parametrize("padding_mode", PADDINGS)
@pytest.mark.parametrize("height", [724, 727])
def test_large_grids_in_strips(assemble, run, height, padding_mode):
    calls = [call((height, 725), (40, 30), padding_mode=padding_mode, align_corners=1, batch=1)]
    model, feeds = assemble(calls, 20)
    assert [n.op_type for n in model.functions[0].node].count("GridSample") == 4
    onnx.checker.check_model(model, full_check=True)
    want = affine_grid_sample(**calls[0][1], **calls[0][2])
    np.testing.assert_allclose(run(model, feeds)["y0"], want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding_mode", PADDINGS)
@pytest.mark.parametrize("source", [(61, 83), (200, 3)])
def test_the_fast_path_costs_no_accuracy(assemble, run, source, padding_mode, align_corners):
    """Error at most twice that of GridSample on a rounded grid, or 4 ulp of the coordinate times the image's slope."""
    for seed in range(3):
        kind, operands, attributes = call((90, 70), source, padding_mode=padding_mode, align_corners=align_corners,
                                          seed=seed)
        want = affine_grid_sample(**operands, **attributes)
        model, feeds = assemble([(kind, operands, attributes)], 20)
        fused = np.abs(run(model, feeds)["y0"] - want).max()
        plain = onnx.parser.parse_model(f"""
            <ir_version: 8, opset_import: ["": 20]>
            g (float[2, 3, H, W] x, float[2, h, w, 2] grid) => (float[N, C, a, b] y) {{
                y = GridSample <padding_mode = "{padding_mode}", align_corners = {align_corners}> (x, grid)
            }}""")
        grid = affine_grid(operands["theta"], operands["size"]).astype(np.float32)
        own = np.abs(run(plain, {"x": operands["x"], "grid": grid})["y"] - want).max()
        slope = max(np.abs(np.diff(operands["x"], axis=axis)).max(initial=0) * operands["x"].shape[axis] / 2
                    for axis in (2, 3))
        farthest = max(1, np.abs(grid).max())
        assert fused <= max(2 * own, 4 * np.spacing(np.float32(farthest)) * slope)


@pytest.mark.parametrize("padding_mode", PADDINGS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_a_theta_out_of_bounds_stays_in_its_sample(assemble, run, value, padding_mode):
    for align_corners in (0, 1):
        kind, operands, attributes = call(padding_mode=padding_mode, align_corners=align_corners)
        want = affine_grid_sample(**operands, **attributes)
        operands["theta"][1, 0, 2] = value
        model, feeds = assemble([(kind, operands, attributes)], 20)
        got = run(model, feeds)["y0"]
        np.testing.assert_allclose(got[0], want[0], atol=1e-5)
        assert not np.isinf(got).any()


def test_border_takes_the_nearest_pixel_however_far(assemble, run):
    kind, operands, attributes = call(padding_mode="border")
    operands["theta"][:] = [[0, 0, 1e30], [0, 0, -1e30]]
    model, feeds = assemble([(kind, operands, attributes)], 20)
    got = run(model, feeds)["y0"]
    np.testing.assert_allclose(got, np.broadcast_to(operands["x"][:, :, :1, -1:], got.shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("mode", "padding_mode"), EVERY)
def test_onnx_reference_evaluator(assemble, mode, padding_mode):
    if (mode, padding_mode) == ("cubic", "border"):
        pytest.skip("onnx's GridSample is wrong there")
    for align_corners in (0, 1):
        calls = [call(mode=mode, padding_mode=padding_mode, align_corners=align_corners)]
        model, feeds = assemble(calls, 20)
        (got,) = ReferenceEvaluator(model).run(None, feeds)
        np.testing.assert_allclose(got, affine_grid_sample(**calls[0][1], **calls[0][2]), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("spatial", "source"), [((7, 9), (6, 5)), ((4, 5, 6), (3, 4, 5))])
def test_shape_inference_passes_through(assemble, spatial, source):
    model, _ = assemble([call(spatial, source, align_corners=1, padding_mode="border")], 20)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    dims = inferred.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_value or d.dim_param for d in dims] == ["n0", 3, *spatial]


def test_constant_sizes_leave_few_nodes(assemble, tmp_path):
    """Nothing but theta's part and the sampler is left when ONNX Runtime has loaded a model of fixed shapes."""
    for attributes, extra in (({}, []), ({"align_corners": 1}, ["Mul"]), ({"mode": "nearest"}, [])):
        model, _ = assemble([call(**attributes)], 20)
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        left = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
        assert left == [*extra, "FusedMatMul", "Reshape", "MatMul", "Reshape", "GridSample"]


def test_helper_attributes_only_where_needed(assemble):
    model, _ = assemble([call()], 20)
    assert {a.name for a in model.graph.node[0].attribute} == {
        "mode", "padding_mode", "align_corners", "grid_align_corners"}
    assert {"Cast", "Shape"} & {n.op_type for n in model.functions[0].node if {"x", "theta"} & set(n.input)} == set()
