"""OpenVINO: fused files read with `register`, and files written by --target openvino, against PyTorch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

import rewriter
import rewriter.runtimes.openvino
from patterns.operators import OPERATORS
from rewriter.cli import main
from rewriter.errors import TargetError

openvino = pytest.importorskip("openvino")
TOLERANCE = {np.float16: 8e-3, np.float32: 1e-5, np.float64: 1e-5, ml_dtypes.bfloat16: 6e-2}  # float64 runs in float32
ROUTES = ("register", "target")


def outputs(model: onnx.ModelProto, feeds: dict, core=None) -> dict[str, np.ndarray]:
    """Outputs by name, computed in float32: on some CPUs OpenVINO's own choice is bfloat16."""
    core = core or openvino.Core()
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU",
                                  {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 2})
    result = compiled(feeds)
    # it merges equal outputs, which then have several names
    return {name: np.array(result[output]) for output in compiled.outputs for name in output.names}


def by(route: str, model: onnx.ModelProto, feeds: dict) -> dict[str, np.ndarray]:
    """As `outputs`, through one of ROUTES."""
    if route == "target":
        return outputs(rewriter.fuse(model, patterns=(), target="openvino")[0], feeds)
    core = openvino.Core()
    rewriter.runtimes.openvino.register(core)
    return outputs(model, feeds, core)


def test_it_does_not_run_functions_by_itself(assemble, calls):
    """Why this module exists; once this fails, it may go."""
    model, feeds = assemble([calls.sampler()])
    with pytest.raises(RuntimeError, match="AffineGridSample"):
        outputs(model, feeds)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_every_mode(assemble, calls, route, dynamic):
    uses = [calls.sampler(*use) for use in calls.SAMPLERS]
    model, feeds = assemble(uses, dynamic=dynamic)
    got = by(route, model, feeds)
    for index, use in enumerate(uses):
        np.testing.assert_allclose(got[f"y{index}"], calls.by_torch(use), rtol=0, atol=1e-5, err_msg=str(use[2]))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: np.dtype(dtype).name)
def test_dtypes(assemble, calls, route, dynamic, dtype):
    uses = [calls.sampler(dtype=dtype), calls.sampler("nearest", "border", 1, 1, dtype=dtype, theta_batch=1, size0=2),
            calls.sampler(dtype=dtype, size0=2), calls.grid(dtype=dtype), calls.grid(1, dtype=dtype, batch=1, size0=3),
            calls.grid(1, dtype=dtype, spatial=(3, 1, 5)), calls.grid(dtype=dtype, spatial=(3, 4, 5), batch=1, size0=2)]
    model, feeds = assemble(uses, dynamic=dynamic)
    got = by(route, model, feeds)
    for index, use in enumerate(uses):
        y = got[f"y{index}"]
        given = feeds[next(iter(name for name in feeds if name.endswith(str(index))))].dtype
        assert y.dtype == given
        np.testing.assert_allclose(y, calls.by_torch(use), rtol=0, atol=TOLERANCE[dtype], err_msg=str(use[2]))


@pytest.mark.parametrize("route", ROUTES)
def test_axes_of_length_one(assemble, calls, route):
    """The coordinate is 0, as PyTorch's."""
    uses = [calls.grid(corners, spatial=spatial) for corners in (0, 1)
            for spatial in ((1, 4), (4, 1), (1, 1), (1, 1, 1))]
    model, feeds = assemble(uses)
    got = by(route, model, feeds)
    for index, use in enumerate(uses):
        np.testing.assert_allclose(got[f"y{index}"], calls.by_torch(use), rtol=0, atol=1e-6)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.int32, np.int64, np.bool_])
def test_turns(assemble, route, dynamic, dtype):
    x = (np.random.default_rng(0).standard_normal((2, 3, 4, 5)) * 100).astype(dtype)
    uses = [("Rot90", {"x": x}, {"k": k, "axes": axes}) for k in (-1, 0, 1, 2, 3)
            for axes in ((2, 3), (0, 2), (3, 1), (-1, 0))]
    if np.dtype(dtype).kind == "f":
        uses += [("CustomRotScale", {"x": x}, {"rotations": k, "scale_factor": 0.1, "dims": dims})
                 for k in (0, 1, 2, 3) for dims in ("height,width", "width, depth", "1,3")]
    model, feeds = assemble(uses, dynamic=dynamic)
    got = by(route, model, feeds)
    for index, (op_type, operands, attributes) in enumerate(uses):
        want = OPERATORS[op_type].reference(**operands, **attributes)
        assert got[f"y{index}"].dtype == want.dtype
        np.testing.assert_array_equal(got[f"y{index}"], want, err_msg=str(attributes))


def test_attributes_left_out_and_opset_16(assemble, calls):
    """The defaults are the operator's; the mode is spelled either way."""
    model, feeds = assemble([calls.sampler("linear"), calls.sampler()], 16)
    model.graph.node[0].attribute[0].s = b"bilinear"
    del model.graph.node[1].attribute[:]
    got = by("register", model, feeds)
    for y in got.values():
        np.testing.assert_allclose(y, calls.by_torch(calls.sampler()), atol=1e-5)


@pytest.mark.parametrize("opset", [11, 13, 16, 19, 21, 23])
@pytest.mark.parametrize("dynamic", [False, True])
def test_opsets(assemble, calls, run, opset, dynamic):
    """The written form is valid at every opset, and ONNX Runtime runs it too."""
    uses = [calls.grid(1), calls.grid(spatial=(3, 4, 5), batch=1, size0=2), calls.grid(spatial=(70, 80))]
    if opset >= 16:
        uses.append(calls.sampler("bilinear" if opset < 20 else "linear", "border"))
    model, feeds = assemble(uses, opset, dynamic=dynamic)
    written, _ = rewriter.fuse(model, patterns=(), target="openvino")
    onnx.checker.check_model(written, full_check=True)
    for got in (run(written, feeds), outputs(written, feeds)):
        for index, use in enumerate(uses):
            np.testing.assert_allclose(got[f"y{index}"], calls.by_torch(use), rtol=0, atol=1e-5)


def test_volumes_are_declined(assemble, calls, tmp_path, capfd):
    """OpenVINO's GridSample takes images only."""
    model, feeds = assemble([calls.sampler(spatial=(3, 4, 5), source=(2, 3, 4))])
    with pytest.raises(RuntimeError, match="images only, not volumes"):
        by("register", model, feeds)
    with pytest.raises(TargetError, match="'node0' in graph: OpenVINO's GridSample takes images only"):
        by("target", model, feeds)
    onnx.save(model, tmp_path / "volume.onnx")
    code = main([str(tmp_path / "volume.onnx"), str(tmp_path / "out.onnx"), "--target", "openvino"])
    assert code == TargetError.exit_code and not (tmp_path / "out.onnx").exists()
    assert "not volumes" in capfd.readouterr().err


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("spatial", [(7, 9), (64, 80), (3, 4, 5), (8, 30, 30)])
def test_precision_that_openvino_chooses(assemble, calls, route, spatial):
    """Without products of its own a model keeps an exact grid, on a CPU with bfloat16 too."""
    use = calls.grid(spatial=spatial)
    model, feeds = assemble([use])
    core = openvino.Core()
    if route == "register":
        rewriter.runtimes.openvino.register(core)
    else:
        model, _ = rewriter.fuse(model, patterns=(), target="openvino")
    (got,) = core.compile_model(core.read_model(model.SerializeToString()), "CPU")(feeds).values()
    np.testing.assert_allclose(got, calls.by_torch(use), rtol=0, atol=1e-5)


class Warp:
    """An export of PyTorch: affine_grid with one align_corners, grid_sample with another."""

    @staticmethod
    def module(corners, grid_corners):
        torch = pytest.importorskip("torch")

        class Module(torch.nn.Module):
            def forward(self, image, theta):
                grids = torch.nn.functional.affine_grid(theta, image.shape, align_corners=grid_corners)
                return torch.nn.functional.grid_sample(image, grids, align_corners=corners)

        return Module()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("corners", "grid_corners"), [(False, False), (True, True), (False, True), (True, False)])
def test_exports_of_pytorch(export, route, corners, grid_corners):
    torch = pytest.importorskip("torch")
    module, args = Warp.module(corners, grid_corners), (torch.rand(2, 3, 24, 40), torch.rand(2, 2, 3))
    fused, report = rewriter.fuse(export(module, args, opset=20))
    assert [f.operator for f in report.fused][-1] == "AffineGridSample"
    names = [value.name for value in fused.graph.input]
    (got,) = by(route, fused, dict(zip(names, (a.numpy() for a in args)))).values()
    np.testing.assert_allclose(got, module(*args), rtol=0, atol=1e-5)


def test_target_in_a_body(tmp_path):
    """Nodes in an If and in a function of the model's own."""
    model, _ = rewriter.fuse(parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18]>
        agraph (float[4, 5] x, bool c) => (float[R, C] y) <int64[1] b = {-1}, int64[1] e = {-9223372036854775808}> {
            y = If (c) <
                then_branch = yes () => (float[R, C] a) <int64[1] axis = {0}> {
                    t = Transpose <perm = [1, 0]> (x)
                    a = Slice (t, b, e, axis, b)
                },
                else_branch = no () => (float[R, C] a) { a = Neg (x) }>
        }
    """))
    assert [f.name for f in model.functions] == ["Rot90"]
    written, report = rewriter.fuse(model, target="openvino")
    assert report.retargeted == 1 and not written.functions and report.needs == []
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    for c in (True, False):
        np.testing.assert_array_equal(outputs(written, {"x": x, "c": np.array(c)})["y"], np.rot90(x) if c else -x)
