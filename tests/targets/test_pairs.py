"""Files written for one target are written for any other: the values stay, or one line says why not."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, parser

import rewriter
from rewriter.cli import main
from rewriter.errors import TargetError
from rewriter.runtimes import targets

PAIRS = [*((20, *pair) for pair in itertools.product(targets.NAMES, repeat=2)), (16, "tensorrt", "portable"),
         (16, "tensorrt-plugin", "stock"), (16, "portable", "tensorrt")]
PLUGIN = """<ir_version: 8, opset_import: ["" : 20, "warpfuse" : 1]>
g (float[N,2,3] theta) => (float[N,4,5,2] y) { [grid] y = warpfuse.WarpfuseAffineGrid<%s>(theta) }"""
GRID = 'size = [1, 1, 4, 5], align_corners = 1, plugin_version = "1", plugin_namespace = "warpfuse"'
THETA = (np.eye(2, 3) + np.arange(12).reshape(2, 2, 3) / 20).astype(np.float32)


def uses(calls, opset):
    """Calls of every operator, the sampler in three modes as the opset spells them."""
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    cubic, linear = ("cubic", "linear") if opset >= 20 else ("bicubic", "bilinear")
    return [calls.sampler(cubic), calls.sampler("nearest", "border", 1, 0), calls.sampler(linear, "reflection"),
            calls.grid(1), calls.grid(spatial=(3, 4, 5), size0=2, batch=1),
            ("Rot90", {"x": x}, {"k": 1, "axes": (1, 3)}),
            ("CustomRotScale", {"x": x}, {"rotations": 2, "scale_factor": 0.1, "dims": "width,depth"})]


@pytest.mark.parametrize(("opset", "first", "second"), PAIRS)
def test_any_after_any(assemble, calls, run, custom, domains, opset, first, second):
    model, feeds = assemble(uses(calls, opset), opset)
    between, _ = rewriter.fuse(model, target=first)
    made, report = rewriter.fuse(between, target=second)
    assert report.target == second
    onnx.checker.check_model(made)
    samplers = 2 if first == "stock" else 3  # its form for linear reflection folds coordinates: no affine grid is left
    count = {"AffineGridSample": samplers, "AffineGrid": 2, "Rot90": 1, "CustomRotScale": 1}
    assert custom(made) == (count if second in ("portable", "kernels") else {})
    assert ("warpfuse" in domains(made)) == (second == "tensorrt-plugin")
    if second.startswith("tensorrt"):  # which ONNX Runtime does not read as it stands
        assert not made.functions
        made, _ = rewriter.inline(made)
        assert domains(made) == {""}
    wanted = run(model, feeds)
    for name, got in run(made, feeds).items():
        np.testing.assert_allclose(got, wanted[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("target", targets.NAMES)
def test_twice_the_same(assemble, calls, target):
    """A target over its own output finds what was static, and writes the same operators again, none more."""
    model, _ = assemble(uses(calls, 20), 20)
    once, _ = rewriter.fuse(model, target=target)
    twice, _ = rewriter.fuse(once, target=target)
    assert sorted(n.op_type for n in twice.graph.node) == sorted(n.op_type for n in once.graph.node)
    assert not twice.graph.initializer or target in ("portable", "kernels")  # sizes that went into constants are gone
    if target in ("portable", "kernels"):
        assert twice == once


def test_plugin_nodes_are_left_to_the_target_that_has_them():
    model = parser.parse_model(PLUGIN % GRID)
    same, report = rewriter.fuse(model, target="tensorrt-plugin")
    assert same == model and not report.changed and report.needs[0].startswith("plugins registered before parsing")


@pytest.mark.parametrize("where", ["graph", "body", "function"])
def test_undone_wherever_they_are(run, domains, where):
    """Plugin nodes and TensorRT's spelling, in the graph, in a body, in a function of the model's own."""
    mode = 'plugin_version = "1", plugin_namespace = "warpfuse", mode = "bicubic", size = [1, 1, 4, 5]'
    node = f"p = warpfuse.WarpfuseAffineGridSample<{mode}>(x, t) q = GridSample<mode = \"bicubic\">(x, g)"
    text = {
        "graph": f"{{ {node} y = Identity(p) z = Identity(q) }}",
        "body": f"""{{ y, z = If (c) <then_branch = a () => (float[2,1,4,5] p, float[2,1,2,2] q) {{ {node} }},
                                     else_branch = b () => (float[2,1,4,5] r, float[2,1,2,2] s) {{
                                         r = Slice(x, zero, end, two) s = GridSample(x, g) }}> }}""",
        "function": "{ y, z = mine.f (x, t, g) }"}[where]
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 20, "warpfuse" : 1, "mine" : 1]>
        graph (float[2,1,4,5] x, float[2,2,3] t, float[2,2,2,2] g, bool c) => (float[2,1,4,5] y, float[2,1,2,2] z)
        <int64[1] zero = {{0}}, int64[1] end = {{5}}, int64[1] two = {{2}}> {text}""" + (f"""
        <domain: "mine", opset_import: ["" : 20, "warpfuse" : 1]>
        f (x, t, g) => (p, q) {{ {node} }}""" if where == "function" else ""))
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((2, 1, 4, 5)).astype(np.float32), "t": THETA,
             "g": rng.uniform(-1, 1, (2, 2, 2, 2)).astype(np.float32), "c": np.array(True)}
    x, t, g = (torch.from_numpy(feeds[name]) for name in "xtg")
    grid = torch.nn.functional.affine_grid(t, x.shape, align_corners=False)
    wanted = [torch.nn.functional.grid_sample(x, over, "bicubic", align_corners=False).numpy() for over in (grid, g)]
    for made, report in (rewriter.inline(model), rewriter.fuse(model), rewriter.fuse(model, target="openvino")):
        assert report.changed and "warpfuse" not in domains(made)
        onnx.checker.check_model(made, full_check=True)
        for got, want in zip(run(made, feeds).values(), wanted):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def test_every_kind_of_model(tmp_path, run):
    gs = pytest.importorskip("onnx_graphsurgeon")
    model = parser.parse_model(PLUGIN % GRID)
    plain, report = rewriter.inline(model)
    assert report.fused[0].note == "a node of TensorRT's plugin" and report.retargeted == 1
    held, _ = rewriter.inline(ir.serde.deserialize_model(model))
    graph, _ = rewriter.inline(gs.import_onnx(model))
    onnx.save(model, tmp_path / "plugin.onnx")
    assert main([str(tmp_path / "plugin.onnx"), str(tmp_path / "plain.onnx"), "--target", "stock", "--quiet"]) == 0
    wanted = rewriter.fuse(model)[0]
    for one in (plain, ir.serde.serialize_model(held), gs.export_onnx(graph), onnx.load(tmp_path / "plain.onnx")):
        assert not one.functions and "warpfuse" not in {n.domain for n in one.graph.node}
        np.testing.assert_allclose(run(one, {"theta": THETA})["y"], run(wanted, {"theta": THETA})["y"], atol=1e-6)
    given = {a.name: helper.get_attribute_value(a) for a in wanted.graph.node[-1].attribute}
    assert wanted.graph.node[-1].op_type == "AffineGrid" and given["align_corners"] == 1


@pytest.mark.parametrize(("old", "new", "reason"), [
    ('plugin_version = "1"', 'plugin_version = "2"', "plugin_version is '2', not '1'"),
    ('plugin_namespace = "warpfuse"', 'more = "no"', "plugin_namespace is '', not 'warpfuse'"),
    ("align_corners = 1", "align_corners = 1, scale = 2.0", "it has an attribute scale"),
    ("align_corners = 1", "align_corners = 3", "align_corners is 3, neither 0 nor 1"),
    ("[1, 1, 4, 5]", "[4, 5]", "size has the shape [2], not [4] or [5]"),
    ("[1, 1, 4, 5]", "[1, 1, 2, 4, 5]", "theta has 2 rows, size 3 spatial axes"),
    ("size = [1, 1, 4, 5]", "size = 4", "size is not a list of ints"),
    ("(theta)", "(theta, theta)", "it has 2 inputs, not 1"),
])
def test_what_it_cannot_undo_it_refuses(tmp_path, capsys, old, new, reason):
    """And portable leaves it as it is, since it may mean something to somebody."""
    model = parser.parse_model((PLUGIN % GRID).replace(old, new))
    same, report = rewriter.fuse(model)
    assert same == model and reason in report.missed[0].reason
    for target in ("stock", "openvino", "tensorrt"):
        with pytest.raises(TargetError) as refused:
            rewriter.fuse(model, target=target)
        assert str(refused.value) == (
            f"WarpfuseAffineGrid 'grid' is for a plugin of TensorRT, which {target} has not: it is no "
            f"WarpfuseAffineGrid as tensorrt-plugin writes it: {reason}")
    onnx.save(model, tmp_path / "m.onnx")
    assert main([str(tmp_path / "m.onnx"), str(tmp_path / "n.onnx"), "--target", "stock"]) == 13
    assert capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "n.onnx").exists()


def test_patterns_that_do_not_look_at_them_are_told():
    with pytest.raises(TargetError, match="has not: the pattern plugin_nodes was not run"):
        rewriter.fuse(parser.parse_model(PLUGIN % GRID), patterns=["rot90"], target="stock")
