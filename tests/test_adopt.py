"""Nodes that bear our operators' names get functions where they fit the contract, and are left alone where not."""

from __future__ import annotations

import io
import itertools
import warnings

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnx_ir as ir
import pytest
from onnx import helper

import rewriter
from patterns.operators import OPERATORS
from rewriter.cli import main
from rewriter.errors import InvalidModelError

RNG = np.random.default_rng(0)
THETA = (np.eye(2, 3) + RNG.uniform(-0.3, 0.3, (2, 2, 3))).astype(np.float32)
IMAGE = RNG.random((2, 3, 4, 5), np.float32)
SIZE = np.array([2, 3, 6, 7])
GRID = "g (float[N,2,3] theta, int64[4] size) => (float[a,b,c,2] y) { y = custom.ops.AffineGrid%s(theta, size) }"
TURN = "g (float[N,C,H,W] x) => (float[a,b,c,d] y) { t = Relu(x) y = custom.ops.CustomRotScale%s(t) }"
OURS = ', "custom.ops" : 1'


def parsed(text, *, opset=20, more="", functions=""):
    """A model; the parser puts functions behind the graph."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{more}]> {text} {functions}')


def adopted(model, run, feeds, operator, note="a node without a function", **attributes):
    """Fuse, hold values against the numpy reference, and return (model, report)."""
    fused, report = rewriter.fuse(model)
    assert [(f.pattern, f.operator, f.note) for f in report.fused] == [("adopt", operator, note)] and report.changed
    onnx.checker.check_model(fused, full_check=True)
    assert report.functions == [operator] == [f.name for f in fused.functions]
    want = OPERATORS[operator].reference(*feeds.values(), **attributes)
    for optimize in (False, True):
        np.testing.assert_allclose(run(fused, feeds, optimize=optimize)["y"], want, rtol=0, atol=2e-6)
    for other in (rewriter.fuse(model)[0], rewriter.fuse(fused)[0]):
        assert other.SerializeToString(deterministic=True) == fused.SerializeToString(deterministic=True)
    return fused, report


def given(node):
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


@pytest.mark.parametrize("more", ["", OURS], ids=["without_import", "imported"])
@pytest.mark.parametrize("corners", [0, 1])
def test_affine_grid(run, corners, more):
    fused, _ = adopted(parsed(GRID % f"<align_corners={corners}>", more=more), run, {"theta": THETA, "size": SIZE},
                       "AffineGrid", align_corners=corners)
    assert given(fused.graph.node[0]) == {"align_corners": corners}


def test_defaults_are_written_and_strange_attributes_dropped(run):
    fused, _ = adopted(parsed(GRID % '<plugin_version="1">'), run, {"theta": THETA, "size": SIZE}, "AffineGrid")
    assert given(fused.graph.node[0]) == {"align_corners": 0}


def test_int32_sizes_are_cast(run):
    fused, _ = rewriter.fuse(parsed((GRID % "").replace("int64[4]", "int32[4]")))
    assert [n.op_type for n in fused.graph.node] == ["Cast", "AffineGrid"]
    assert run(fused, {"theta": THETA, "size": SIZE.astype(np.int32)})["y"].shape == (2, 6, 7, 2)


@pytest.mark.parametrize(("opset", "written"), [(18, b"bicubic"), (20, b"cubic")])
@pytest.mark.parametrize("mode", ["cubic", "bicubic"])
def test_the_sampler_is_spelled_for_the_opset(run, mode, opset, written):
    text = ("g (float[2,3,4,5] x, float[2,2,3] theta, int64[4] size) => (float[a,b,c,d] y) "
            f'{{ y = custom.ops.AffineGridSample<mode="{mode}", padding_mode="border">(x, theta, size) }}')
    fused, _ = adopted(parsed(text, opset=opset), run, {"x": IMAGE, "theta": THETA, "size": SIZE}, "AffineGridSample",
                       mode="cubic", padding_mode="border")
    assert given(fused.graph.node[0])["mode"] == written


def test_rot90_is_written_canonically(run):
    text = "g (float[2,3,4,5] x) => (float[a,b,c,d] y) { y = custom.ops.Rot90<k=-3, axes=[-1, 2]>(x) }"
    fused, _ = adopted(parsed(text), run, {"x": IMAGE}, "Rot90", k=1, axes=(3, 2))
    assert given(fused.graph.node[0])["k"] == 3 and given(fused.graph.node[0])["axes"] == [2, 3]


def test_no_turn_is_no_node():
    text = "g (float[2,3] x) => (float[2,3] y) { t = Relu(x) u = custom.ops.Rot90<k=4>(t) y = Neg(u) }"
    fused, _ = rewriter.fuse(parsed(text))
    assert [n.op_type for n in fused.graph.node] == ["Relu", "Neg"] and not fused.functions


@pytest.mark.parametrize("dtype", ["float16", "float", "double"])
def test_rot_scale(run, dtype):
    text = (TURN % '<rotations=3, scale_factor=0.3, dims="width,1">').replace("float[", f"{dtype}[")
    fused, _ = rewriter.fuse(parsed(text))
    x = IMAGE.astype({"float": "float32", "double": "float64"}.get(dtype, dtype))
    want = OPERATORS["CustomRotScale"].reference(x, rotations=3, scale_factor=np.float32(0.3), dims="width,1")
    np.testing.assert_array_equal(run(fused, {"x": x})["y"], want)


def test_rot_scale_in_the_default_domain(run):
    text = (TURN % '<rotations=1, scale_factor=2.0, dims="height,width">').replace("custom.ops.", "")
    adopted(parsed(text), run, {"x": IMAGE}, "CustomRotScale", "a node of the default domain",
            rotations=1, scale_factor=2.0, dims="height,width")


@pytest.mark.parametrize("attributes", [
    "", "<rotations=1, scale_factor=2.0>", '<rotations=1.0, scale_factor=2.0, dims="height,width">',
    '<rotations=1, scale_factor=2.0, dims="height,width", more=1>'])
def test_in_the_default_domain_all_attributes_must_fit(attributes):
    model = parsed((TURN % attributes).replace("custom.ops.", ""))
    with pytest.raises(InvalidModelError, match="No Op registered for CustomRotScale"):
        rewriter.fuse(model)


def aten(*, dynamic, corners=False, opset=16):
    """What the TorchScript exporter makes of affine_grid when it may fall back to ATen."""
    torch = pytest.importorskip("torch")
    from torch.nn import functional as F

    class Warp(torch.nn.Module):
        def forward(self, theta, x):
            return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=corners), align_corners=corners)

    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Warp(), (torch.rand(2, 2, 3), torch.rand(2, 3, 4, 5)), buffer, dynamo=False, opset_version=opset,
            operator_export_type=torch.onnx.OperatorExportTypes.ONNX_ATEN_FALLBACK, input_names=["theta", "x"],
            dynamic_axes={"theta": [0], "x": [0, 2, 3]} if dynamic else None)
    return onnx.load_from_string(buffer.getvalue()), Warp()


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_atens_generator(run, custom, dynamic, corners):
    torch = pytest.importorskip("torch")

    model, module = aten(dynamic=dynamic, corners=corners)
    assert [n.op_type for n in model.graph.node if n.domain] == ["ATen"]
    fused, report = rewriter.fuse(model)
    assert custom(fused) == {"AffineGridSample": 1} and not report.missed
    assert report.fused[0].note == "PyTorch's affine_grid_generator"
    x = IMAGE if not dynamic else RNG.random((2, 3, 9, 7), np.float32)
    want = module(torch.from_numpy(THETA), torch.from_numpy(x)).numpy()
    (got,) = run(fused, {"theta": THETA, "x": x}).values()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("call", ["affine_grid_generator<align_corners=1>(theta, size)",
                                  "affine_grid_generator(theta, size, yes)"])
def test_atens_generator_by_name(run, call):
    text = ("g (float[N,2,3] theta, int64[4] size) => (float[a,b,c,2] y) <bool yes = {1}> "
            f"{{ y = org.pytorch.aten.{call} }}")
    adopted(parsed(text), run, {"theta": THETA, "size": SIZE}, "AffineGrid", "PyTorch's affine_grid_generator",
            align_corners=1)


@pytest.mark.parametrize("call", [
    'ATen<operator="erfinv">(theta)', 'ATen<operator="affine_grid_generator", overload_name="out">(theta, size, yes)',
    "affine_grid_generator_backward(theta, size, yes)", "ATen<operator=1>(theta, size, yes)"])
def test_other_aten_operators_stay(call):
    text = ("g (float[N,2,3] theta, int64[4] size) => (float[a,b,c,2] y) <bool yes = {1}> "
            f"{{ y = org.pytorch.aten.{call} }}")
    model = parsed(text, more=', "org.pytorch.aten" : 1')
    same, report = rewriter.fuse(model)
    assert same == model and not report.missed


@pytest.mark.parametrize(("old", "new", "reason"), [
    ("", "<align_corners=2>", "align_corners is 2, neither 0 nor 1"),
    ("", "<align_corners=1.0>", "align_corners is not an int"),
    ("(theta, size)", "(theta)", "it has 1 input, not 2"),
    ("(theta, size)", "(theta, size, size)", "it has 3 inputs, not 2"),
    ("(theta, size)", "(theta, , size)", "it has 3 inputs, not 2"),
    (" y = ", " y, z = ", "it has 2 outputs, not 1"),
    ("int64[4]", "float[4]", "size is FLOAT, not int64"),
    ("int64[4]", "int64[2]", "size has the shape [2], not [4] or [5]"),
    ("int64[4]", "int64[5]", "theta has 2 rows, size 3 spatial axes"),
    ("float[N,2,3]", "float[N,3,3]", "not [N, 2, 3] or [N, 3, 4]"),
    ("float[N,2,3]", "float[2,3]", "not [N, 2, 3] or [N, 3, 4]"),
    ("float[N,2,3]", "int64[N,2,3]", "the dtype of theta is INT64"),
])
def test_grids_that_do_not_fit(old, new, reason):
    declined((GRID % new) if not old else (GRID % "").replace(old, new), "AffineGrid", reason)


def test_a_grid_of_unknown_rank():
    text = (GRID % "").replace("int64[4]", "int64[K]").replace("float[N,2,3]", "float[N,A,B]")
    declined(text, "AffineGrid", "neither theta nor size tells how many spatial axes there are")


@pytest.mark.parametrize(("old", "new", "reason"), [
    ("", '<dims="rows,columns">', "'rows,columns' are not two comma separated axes"),
    ("", '<dims="2,-2">', "axes 2 and -2 are no plane of a tensor of rank 4"),
    ("", '<dims="2,4">', "axes 2 and 4 are no plane of a tensor of rank 4"),
    ("", "<scale_factor=2>", "scale_factor is not a float"),
    ("", '<rotations="one">', "rotations is not an int"),
    ("float[N,C,H,W]", "int32[N,C,H,W]", "the dtype of x is INT32"),
])
def test_turns_that_do_not_fit(old, new, reason):
    declined((TURN % new) if not old else (TURN % "").replace(old, new), "CustomRotScale", reason)


def declined(text, operator, reason):
    model = parsed(text, more=OURS)
    same, report = rewriter.fuse(model)
    assert same == model and not report.fused
    assert report.missed[0].reason.startswith(f"it is no {operator} of custom.ops: ")
    assert reason in report.missed[0].reason and report.missed[0].pattern == "adopt"


def test_somebody_elses_function_is_left_alone(run):
    theirs = '<domain: "custom.ops", opset_import: ["" : 20]> AffineGrid (t, s) => (y) { y = Neg(t) }'
    text = "g (float[N,2,3] theta, int64[4] size) => (float[N,2,3] y) { y = custom.ops.AffineGrid(theta, size) }"
    model = parsed(text, more=OURS, functions=theirs)
    same, report = rewriter.fuse(model)
    assert same == model
    assert [m.reason for m in report.missed] == ["the model defines custom.ops::AffineGrid itself"]
    np.testing.assert_array_equal(run(same, {"theta": THETA, "size": SIZE})["y"], -THETA)


@pytest.mark.parametrize(("domain", "name", "overload"), [
    ("custom.ops", "AffineGrid", "other"), ("org.pytorch.aten", "affine_grid_generator", "")])
def test_nor_is_an_overload_or_a_function_of_atens_name(run, domain, name, overload):
    text = ("g (float[N,2,3] theta, int64[4] size) => (float[N,2,3] y) <bool yes = {1}> "
            f"{{ y = {domain}.{name}(theta, size{', yes' if not overload else ''}) }}")
    theirs = f'<domain: "{domain}", opset_import: ["" : 20]> {name} (t, s, c) => (y) {{ y = Neg(t) }}'
    model = parsed(text, more=f', "{domain}" : 1', functions=theirs)
    model.graph.node[0].overload = model.functions[0].overload = overload
    model.ir_version = 10
    same, report = rewriter.fuse(model)
    assert same == model
    assert [m.reason for m in report.missed] == [f"the model defines {domain}::{name} itself"]
    np.testing.assert_array_equal(run(same, {"theta": THETA, "size": SIZE})["y"], -THETA)


def test_one_that_does_not_fit_keeps_all_of_its_name():
    text = """g (float[N,2,3] theta, int64[4] size, float[2,3,4,5] x) => (float[a,b,c,2] y, float[q] z, float[r] w) {
        [fits] y = custom.ops.AffineGrid(theta, size)
        [other] z = custom.ops.AffineGrid(x)
        [turned] w = custom.ops.Rot90<axes = [2, 3]>(x)
    }"""
    _, report = rewriter.fuse(parsed(text, more=OURS))
    assert [f.operator for f in report.fused] == ["Rot90"] == report.functions
    assert {m.node: m.reason for m in report.missed} == {
        "fits": "another node of that name, other, is no AffineGrid of custom.ops: it has 1 input, not 2",
        "other": "it is no AffineGrid of custom.ops: it has 1 input, not 2"}


def test_what_would_become_that_operator_stays_beside_a_misfit(export, custom):
    torch = pytest.importorskip("torch")
    from torch.nn import functional as F

    class Grid(torch.nn.Module):
        def forward(self, theta):
            return F.affine_grid(theta, (2, 1, 9, 8), align_corners=False)

    model = export(Grid(), (torch.rand(2, 2, 3),))
    model.opset_import.add(domain="custom.ops", version=1)
    model.graph.node.add(op_type="AffineGrid", domain="custom.ops", input=[model.graph.input[0].name], output=["q"])
    same, report = rewriter.fuse(model)
    assert custom(same) == {"AffineGrid": 1} and not same.functions
    assert "the model uses custom.ops::AffineGrid without a function" in {m.reason for m in report.missed}


def test_another_version_of_the_domain_is_left_alone():
    model = parsed(GRID % "", more=', "custom.ops" : 2')
    same, report = rewriter.fuse(model)
    assert same == model and report.missed[0].reason == "the model imports version 2 of custom.ops, not 1"


def test_old_opsets_are_refused():
    text = ("g (float[2,3,4,5] x, float[2,2,3] theta, int64[4] size) => (float[a,b,c,d] y) "
            "{ y = custom.ops.AffineGridSample(x, theta, size) }")
    _, report = rewriter.fuse(parsed(text, opset=15, more=OURS))
    assert "needs opset 16 or newer, this model has 15" in report.missed[0].reason


def test_in_bodies_and_functions(run):
    text = """g (float[2,2,3] theta, int64[4] size, bool c) => (float[2,6,7,2] y) {
        t = my.twice(theta)
        y = If (c) <then_branch = a () => (float[2,6,7,2] p) { p = custom.ops.AffineGrid(t, size) },
                    else_branch = b () => (float[2,6,7,2] q) { q = my.inner(t, size) }> }"""
    functions = """<domain: "my", opset_import: ["" : 20]> twice (a) => (b) { b = Add(a, a) }
        <domain: "my", opset_import: ["" : 20, "custom.ops" : 1]>
        inner (t, s) => (g) { g = custom.ops.AffineGrid<align_corners = 1>(t, s) }"""
    model = parsed(text, more=', "my" : 1, "custom.ops" : 1', functions=functions)
    fused, report = rewriter.fuse(model)
    assert sorted(f.scope for f in report.fused) == ["function my::inner", "graph/If.then_branch"]
    onnx.checker.check_model(fused, full_check=True)
    reference = OPERATORS["AffineGrid"].reference
    for c in (False, True):
        got = run(fused, {"theta": THETA, "size": SIZE, "c": np.array(c)})["y"]
        np.testing.assert_allclose(got, reference(2 * THETA, SIZE, align_corners=int(not c)), atol=2e-6)


def test_an_attribute_that_callers_choose():
    text = "g (float[2,2,3] theta, int64[4] size) => (float[q] y) { y = my.inner<corners = 1>(theta, size) }"
    function = """<domain: "my", opset_import: ["" : 20, "custom.ops" : 1]> inner <corners> (t, s) => (g) {
        g = custom.ops.AffineGrid<align_corners : int = @corners>(t, s) }"""
    _, report = rewriter.fuse(parsed(text, more=', "my" : 1, "custom.ops" : 1', functions=function))
    assert "align_corners is chosen by the callers of the function around it" in report.missed[0].reason


def test_a_fused_model_that_lost_its_functions_is_restored(export):
    torch = pytest.importorskip("torch")
    from torch.nn import functional as F

    class Warp(torch.nn.Module):
        def forward(self, x, theta):
            turned = torch.rot90(torch.relu(x), 1, (2, 3)) * 0.5
            return F.grid_sample(turned, F.affine_grid(theta, turned.shape, align_corners=True), align_corners=True)

    fused, _ = rewriter.fuse(export(Warp(), (torch.rand(1, 2, 24, 20), torch.rand(1, 2, 3))))
    bare = onnx.ModelProto.FromString(fused.SerializeToString())
    del bare.functions[:], bare.graph.value_info[:]
    assert len(fused.functions) == 2
    restored, report = rewriter.fuse(bare)
    assert len(report.fused) == 2
    assert {f.name: f.SerializeToString(deterministic=True) for f in restored.functions} == {
        f.name: f.SerializeToString(deterministic=True) for f in fused.functions}
    assert [given(n) for n in restored.graph.node] == [given(n) for n in fused.graph.node]
    assert [n.name for n in restored.graph.node] == [n.name for n in fused.graph.node]


def test_every_kind_of_model_and_the_command_line(tmp_path, capsys):
    model = parsed(GRID % "<align_corners=1>")
    surgeon = gs.import_onnx(parsed(GRID % "<align_corners=1>", more=OURS))
    for kind, read in ((ir.from_proto(model), ir.to_proto), (surgeon, gs.export_onnx)):
        assert [f.name for f in read(rewriter.fuse(kind)[0]).functions] == ["AffineGrid"]
    onnx.save(model, tmp_path / "m.onnx")
    assert main([str(tmp_path / "m.onnx"), str(tmp_path / "f.onnx"), "--patterns", "adopt"]) == 0
    assert "a node without a function" in capsys.readouterr().out
    assert onnx.load(tmp_path / "f.onnx").functions[0].name == "AffineGrid"
    assert main([str(tmp_path / "m.onnx"), str(tmp_path / "g.onnx"), "--patterns", "rot90"]) == 6
    assert "No opset import for domain 'custom.ops'" in capsys.readouterr().err
    assert main([str(tmp_path / "m.onnx"), "--dry-run"]) == 0


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_unsorted_nodes_beside_a_missing_import(order, run):
    text = """g (float[2,2,3] theta, int64[4] size) => (float[2,6,7,2] y) {
        a = Relu(theta) b = custom.ops.AffineGrid(a, size) y = Neg(b) }"""
    model = parsed(text)
    nodes = [model.graph.node[i] for i in order]
    shuffled = onnx.ModelProto.FromString(model.SerializeToString())
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(nodes)
    fused, _ = rewriter.fuse(shuffled)
    onnx.checker.check_model(fused)
    assert run(fused, {"theta": THETA, "size": SIZE})["y"].shape == (2, 6, 7, 2)
