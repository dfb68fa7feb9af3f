"""--target tensorrt and tensorrt-plugin, as far as they can be judged without a GPU: TensorRT itself is never run.

Values are those of ONNX Runtime on the same operators, with every GridSample in the mode TensorRT would read.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
import types
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from tensorrt_lookup import VERSIONS, branch, mode_read, walk

import rewriter
from rewriter.cli import main
from rewriter.errors import TargetError
from rewriter.runtimes.tensorrt import NAMESPACE, PLUGINS

CORPUS = Path(__file__).parents[1] / "corpus"
EXAMPLE = Path(__file__).parents[2] / "examples" / "tensorrt_plugin"
OURS = [(name, "1", NAMESPACE) for name in PLUGINS.values()]


def retarget(model: onnx.ModelProto, target="tensorrt"):
    return rewriter.fuse(model, patterns=(), target=target)


def as_tensorrt_reads_it(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every GridSample with the mode that TensorRT takes it for, spelled for ONNX Runtime."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    opset = next(o.version for o in copy.opset_import if o.domain == "")
    for node in copy.graph.node:
        if node.op_type == "GridSample":
            mode = mode_read(node)
            kept = [a for a in node.attribute if a.name != "mode"]
            del node.attribute[:]
            node.attribute.extend(kept)
            newer = {"bilinear": "linear", "bicubic": "cubic"}
            node.attribute.append(helper.make_attribute("mode", newer.get(mode, mode) if opset >= 20 else mode))
    return copy


@pytest.mark.parametrize("opset", [16, 20])
@pytest.mark.parametrize("dynamic", [False, True])
def test_every_mode_means_the_same(assemble, calls, run, domains, opset, dynamic):
    spelled = {"linear": "bilinear", "cubic": "bicubic"} if opset < 20 else {}
    uses = [calls.sampler(*use) for use in calls.SAMPLERS]
    given = [(op, operands, attributes | {"mode": spelled.get(attributes["mode"], attributes["mode"])})
             for op, operands, attributes in uses]
    model, feeds = assemble(given, opset, dynamic=dynamic)
    written, report = retarget(model)
    assert domains(written) == {""} and not written.functions
    onnx.checker.check_model(written)
    assert not any("MatMul" in n.op_type for n in written.graph.node)
    for version in VERSIONS:
        assert {way for _, way in walk(written, (), version)} == {"built-in"}
    for got, use in zip(run(as_tensorrt_reads_it(written), feeds).values(), uses):
        np.testing.assert_allclose(got, calls.by_torch(use), rtol=0, atol=1e-5, err_msg=str(use[2]))
    assert any("bicubic" in need for need in report.needs) == (opset >= 20)
    assert any("optimization profile" in need for need in report.needs) == dynamic
    assert any("shape tensor values" in need for need in report.needs) == dynamic


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_turns_volumes_and_halves(assemble, calls, run, dtype):
    """Samplers are float32 inside, since no document says that grid and image may differ."""
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(dtype)
    uses = [calls.sampler(dtype=dtype), calls.grid(dtype=dtype), calls.grid(1, spatial=(3, 4, 5), dtype=dtype)]
    turns = [("Rot90", {"x": x}, {"k": k, "axes": (1, 3)}) for k in (1, 2, 3)]
    model, feeds = assemble([*uses, *turns])
    written, _ = retarget(model)
    got = run(written, feeds)
    for index, use in enumerate(uses):
        np.testing.assert_allclose(got[f"y{index}"], calls.by_torch(use), atol=8e-3 if dtype == np.float16 else 1e-5)
    for index, turn in enumerate(turns, len(uses)):
        np.testing.assert_array_equal(got[f"y{index}"], np.rot90(x, turn[2]["k"], (1, 3)))


def test_the_trap_of_opset_20():
    """A GridSample of the model's own is read rightly too; unfused, TensorRT would have taken it for nearest."""
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 20]>
        agraph (float[1, 3, 4, 5] x, float[1, 2, 2, 2] grid) => (float[1, 3, 2, 2] y, float[1, 3, 2, 2] z) {
            y = GridSample <mode = "linear"> (x, grid)
            z = GridSample <mode = "cubic"> (x, grid)
        }
    """)
    assert [mode_read(node) for node in model.graph.node] == ["nearest", "nearest"]
    written, report = rewriter.fuse(model, target="tensorrt")
    assert [mode_read(node) for node in written.graph.node] == ["bilinear", "bicubic"]
    assert report.changed and report.retargeted == 2 and not report.fused
    assert rewriter.fuse(written, target="tensorrt")[0] == written


def test_volumes(assemble, calls):
    """No sampler of volumes without the plugin; a volume of the model's own is named."""
    model, _ = assemble([calls.sampler(spatial=(3, 4, 5), source=(2, 3, 4))])
    with pytest.raises(TargetError, match="images only, not volumes; tensorrt-plugin"):
        retarget(model)
    written, _ = retarget(model, "tensorrt-plugin")
    assert [n.op_type for n in written.graph.node] == ["WarpfuseAffineGridSample"]
    own = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 20]>
        agraph (float[1, 3, 4, 5, 6] x, float[1, 2, 2, 2, 3] grid) => (float[1, 3, 2, 2, 2] y) {
            y = GridSample (x, grid)
        }
    """)
    own.graph.node[0].name = "sampler"
    assert rewriter.fuse(own, target="tensorrt")[1].needs == [
        "a plugin of your own for GridSample sampler: TensorRT's takes images only"]


def test_where_portable_files_go(assemble, calls):
    """Why neither target leaves functions of ours: who wins changed twice, and a name can be taken away later."""
    model, _ = assemble([calls.sampler(), calls.grid()])
    plain = [(name, "1", "") for name in PLUGINS]
    ways = {version: [way for node, way in walk(model, plain, version) if node.domain] for version in VERSIONS}
    assert ways[10, 6] == ways[10, 15] == ways[11, 1] == ["function", "function"]
    assert ways[10, 7] == ways[10, 14] == ["plugin", "plugin"]
    assert [way for node, way in walk(model, plain, (10, 15), override=True) if node.domain] == ["plugin", "plugin"]
    later = {"AffineGrid", "GridSample"}
    grid = model.graph.node[1]
    assert branch(grid, {"AffineGrid"}, (), (11, 1), built_in=later) == "built-in"
    inner = onnx.ModelProto()
    inner.CopyFrom(model)
    next(f for f in inner.functions if f.name == "AffineGrid").node.append(grid)
    with pytest.raises(RecursionError):
        list(walk(inner, (), (10, 15)))


@pytest.mark.parametrize("registered", [True, False])
def test_where_plugin_nodes_go(assemble, calls, registered):
    """To the plugin in every version, and nowhere else: without it the parse fails and names it."""
    model, _ = assemble([calls.sampler(), calls.grid(), ("Rot90", {"x": np.ones((2, 3), np.float32)},
                                                         {"k": 1, "axes": (0, 1)})])
    written, report = retarget(model, "tensorrt-plugin")
    onnx.checker.check_model(written)
    assert not written.functions and {o.domain for o in written.opset_import} == {"", NAMESPACE}
    for version in VERSIONS:
        for override in (False, True):
            for node, way in walk(written, OURS if registered else (), version, override=override):
                assert way == (("plugin" if registered else "missing") if node.domain else "built-in")
    assert report.needs[0].startswith("plugins registered before parsing: warpfuse::WarpfuseAffineGrid, ")


def test_runtime_sizes_get_no_plugin(assemble, calls):
    """Python plugins take no shape tensors: such nodes are written out."""
    model, _ = assemble([calls.sampler(), calls.grid()], dynamic=True)
    assert retarget(model, "tensorrt-plugin")[0] == retarget(model, "tensorrt")[0]


def test_what_the_build_needs_is_printed(tmp_path, capsys):
    assert main([str(CORPUS / "pair_dynamic_batch.onnx"), str(tmp_path / "a.onnx"), "--target", "tensorrt-plugin"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "it needs: plugins registered before parsing: warpfuse::WarpfuseAffineGridSample, version 1" in said
    assert "it needs: an optimization profile (trtexec --minShapes --optShapes --maxShapes) for" in said


def test_strangers_are_named():
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18, "custom.ops" : 1, "mine" : 1]>
        agraph (float[2, 3] x) => (float[2, 3] y, double[2] z) <double[2] z = {1, 2}> {
            a = custom.ops.Other (x)
            y = mine.Twice (a)
        }
        <domain: "mine", opset_import: ["" : 18]>
        Twice (x) => (y) { y = Add (x, x) }
    """)
    needs = rewriter.fuse(model, target="tensorrt")[1].needs
    assert needs == ["plugins for custom.ops::Other, which are nodes of this model's own",
                     "a check of the values: TensorRT takes float64 down to float32",
                     "a look at the functions Twice: TensorRT finds them by name alone, behind its own operators"]


def test_a_graph_of_graphsurgeon_comes_back_as_one(assemble, calls, capfd):
    """Without a word: graphsurgeon prints an error when its graphs are asked for attributes that they have not."""
    gs = pytest.importorskip("onnx_graphsurgeon")
    model, _ = assemble([calls.sampler()])
    for kind in (gs.Graph, type("Mine", (gs.Graph,), {})):
        given = gs.import_onnx(model)
        given.__class__ = kind
        graph, report = rewriter.fuse(given, target="tensorrt")
        assert isinstance(graph, gs.Graph) and report.retargeted == 1
        assert {node.domain for node in graph.nodes} <= {None, ""} and not graph.functions
        (node,) = rewriter.fuse(given, target="tensorrt-plugin")[0].nodes
        assert (node.op, node.domain) == ("WarpfuseAffineGridSample", NAMESPACE)
        assert node.attrs == {"padding_mode": "zeros", "align_corners": 0, "grid_align_corners": 0, "mode": "bilinear",
                              "size": [1, 1, 7, 9], "plugin_version": "1", "plugin_namespace": "warpfuse"}
        rewriter.inline(given)
        rewriter.fuse(graph, in_place=True)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("target", ["tensorrt", "tensorrt-plugin"])
@pytest.mark.parametrize("opset", [16, 20])
def test_graphsurgeon_keeps_what_is_written(assemble, calls, run, target, opset):
    """Its import and export leave every node, attribute, type and value alone."""
    gs = pytest.importorskip("onnx_graphsurgeon")
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    cubic = "cubic" if opset >= 20 else "bicubic"
    turns = [("Rot90", {"x": x}, {"k": 3, "axes": (1, 3)}),
             ("CustomRotScale", {"x": x}, {"rotations": 2, "scale_factor": 0.1, "dims": "width,depth"})]
    model, feeds = assemble([calls.sampler(cubic), calls.sampler("nearest", "reflection", 1, 0), calls.grid(1),
                             calls.grid(spatial=(3, 4, 5), size0=2, batch=1), *turns], opset)
    written, _ = retarget(model, target)
    again = gs.export_onnx(gs.import_onnx(written))
    for before, after in zip(written.graph.node, again.graph.node, strict=True):
        assert (after.op_type, after.domain, after.input, after.output) == (
            before.op_type, before.domain, before.input, before.output)
        assert {a.name: a for a in after.attribute} == {a.name: a for a in before.attribute} or (
            before.op_type == "Constant")  # whose tensors get the names of their values
    assert {o.domain: o.version for o in again.opset_import} == {o.domain: o.version for o in written.opset_import}
    onnx.checker.check_model(again)
    after, before = (m if target == "tensorrt" else rewriter.inline(m)[0] for m in (again, written))
    wanted = run(as_tensorrt_reads_it(before), feeds)
    for name, got in run(as_tensorrt_reads_it(after), feeds).items():
        np.testing.assert_array_equal(got, wanted[name])


# The example plugin.

class FakeTensorRT(types.ModuleType):
    """As much of `tensorrt` and `tensorrt.plugin` as the example touches when it is imported; tensors are numpy's."""

    def __init__(self):
        super().__init__("tensorrt")
        self.registered, self.implemented = {}, {}
        plugin = types.ModuleType("tensorrt.plugin")
        plugin.TensorDesc = plugin.Tensor = object
        plugin.register = lambda name: lambda function: self.registered.setdefault(name, function)
        plugin.impl = lambda name: lambda function: self.implemented.setdefault(name, function)
        plugin.from_shape_expr = lambda shape, dtype: types.SimpleNamespace(shape_expr=tuple(shape), dtype=dtype)
        self.plugin = plugin


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fake(monkeypatch):
    torch = pytest.importorskip("torch")
    fake = FakeTensorRT()
    monkeypatch.setitem(sys.modules, "tensorrt", fake)
    monkeypatch.setitem(sys.modules, "tensorrt.plugin", fake.plugin)
    monkeypatch.setitem(sys.modules, "compute", load("compute"))
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda stream: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(load("plugin"), "DEVICE", "cpu")
    return fake


def test_plugins_bear_the_names_that_are_written(fake):
    names = {f"{NAMESPACE}::{name}" for name in PLUGINS.values()}
    assert set(fake.registered) == set(fake.implemented) == names


@pytest.mark.parametrize("spatial", [(7, 9), (3, 4, 5), (1, 4)])
@pytest.mark.parametrize("size0", [1, 2])
def test_plugins_take_the_nodes_that_are_written(fake, assemble, calls, spatial, size0):
    """Attributes by name and type; the described shape; the values, on the CPU, against PyTorch's own grids."""
    torch = pytest.importorskip("torch")
    batch = 3 if size0 == 1 else 1
    uses = [calls.sampler("nearest" if len(spatial) == 3 else "cubic", "border", 1, 0, spatial=spatial,
                          source=(4, 5, 6)[:len(spatial)], size0=size0, batch=max(batch, size0), theta_batch=batch),
            calls.grid(1, spatial=spatial, size0=size0, batch=batch)]
    written, _ = retarget(assemble(uses)[0], "tensorrt-plugin")
    for node, use in zip(written.graph.node, uses):
        name = f"{NAMESPACE}::{node.op_type}"
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute if not a.name.startswith("plugin_")}
        given = {k: v.decode() if isinstance(v, bytes) else np.array(v, np.int32) if isinstance(v, list) else v
                 for k, v in given.items()}
        arrays = [torch.from_numpy(v) for k, v in use[1].items() if k != "size"]
        described = [types.SimpleNamespace(shape_expr=tuple(a.shape), dtype=a.dtype) for a in arrays]
        signature = inspect.signature(fake.registered[name])
        assert list(signature.parameters)[len(node.input):] == list(given)
        assert list(inspect.signature(fake.implemented[name]).parameters) == [
            *signature.parameters, "outputs", "stream"]
        out = fake.registered[name](*described, *given.values())
        want = calls.by_torch(use)
        assert tuple(out.shape_expr) == want.shape
        y = torch.empty(out.shape_expr, dtype=out.dtype)
        fake.implemented[name](*arrays, *given.values(), (y,), 0)
        np.testing.assert_allclose(y.numpy(), want, rtol=0, atol=1e-5)


def test_plugin_computes_halves_in_float32(fake, calls):
    torch = pytest.importorskip("torch")
    use = calls.sampler(dtype=np.float16)
    operands = {k: torch.from_numpy(v) for k, v in use[1].items()}
    y = sys.modules["compute"].affine_grid_sample(operands["x"], operands["theta"], use[1]["size"], "bilinear", "zeros",
                                                  False, False)
    assert y.dtype == torch.float16
    np.testing.assert_allclose(y.float().numpy(), calls.by_torch(use), atol=2e-3)
