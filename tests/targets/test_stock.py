"""rewriter.inline and --target stock: nothing of ours left, the same values, and nothing else touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.compose
import onnx_ir as ir
import pytest
from onnx import helper, parser

import rewriter
from patterns.operators import OPERATORS
from rewriter.cli import main
from rewriter.functions import attach
from rewriter.runtimes.stock import DEFAULTS

CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*.onnx"))


def fused_text(text: str) -> onnx.ModelProto:
    """A model written down, with functions of ours attached to its nodes of custom.ops."""
    model = ir.serde.deserialize_model(parser.parse_model(text))
    attach(model, OPERATORS)
    made = ir.serde.serialize_model(model)
    onnx.checker.check_model(made)
    return made


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_corpus(path, run, domains):
    """The very bits of the fused model: both are the same operators, some folded here, some by ONNX Runtime."""
    fused, _ = rewriter.fuse(onnx.load(path))
    plain, report = rewriter.inline(fused)
    assert "custom.ops" not in domains(plain) | {f.domain for f in plain.functions}
    assert "custom.ops" not in {o.domain for o in plain.opset_import}
    assert report.retargeted == sum(n.domain == "custom.ops" for n in fused.graph.node) and report.functions == []
    onnx.checker.check_model(plain, full_check=True)
    with np.load(path.with_suffix(".npz")) as stored:
        feeds = {name[3:]: stored[name] for name in stored.files if name.startswith("in_")}
    before, after = run(fused, feeds), run(plain, feeds)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


@pytest.mark.parametrize("dynamic", [False, True])
def test_every_mode(assemble, calls, run, domains, dynamic):
    """All uses in one model, whose shared functions are then the least specialised; written out each is its own."""
    uses = [calls.sampler(*use) for use in calls.SAMPLERS]
    model, feeds = assemble(uses, dynamic=dynamic)
    plain, report = rewriter.inline(model)
    assert report.retargeted == len(uses) and domains(plain) == {""}
    onnx.checker.check_model(plain, full_check=True)
    for got, use in zip(run(plain, feeds).values(), uses):
        np.testing.assert_allclose(got, calls.by_torch(use), rtol=0, atol=1e-5, err_msg=str(use[2]))


@pytest.mark.parametrize("dynamic", [False, True])
def test_dtypes_and_volumes(assemble, calls, run, dynamic):
    uses = [make(dtype=dtype, spatial=spatial, **more)
            for dtype in (np.float16, np.float32, np.float64)
            for make, spatial, more in ((calls.grid, (4, 6), {}), (calls.grid, (3, 4, 5), {"size0": 2, "batch": 1}),
                                        (calls.sampler, (4, 6), {}),
                                        (calls.sampler, (3, 4, 5),
                                         {"source": (2, 3, 4), "theta_batch": 1, "size0": 2}))]
    model, feeds = assemble(uses, dynamic=dynamic)
    plain, _ = rewriter.inline(model)
    for got, use in zip(run(plain, feeds).values(), uses):
        dtype = next(iter(use[1].values())).dtype
        assert got.dtype == dtype
        tolerance = {np.float16: 8e-3, np.float32: 1e-5, np.float64: 1e-12}[dtype.type]
        np.testing.assert_allclose(got, calls.by_torch(use), rtol=0, atol=tolerance)


def test_constants_are_folded(assemble, calls):
    """What is left with a constant size is what ONNX Runtime would leave of the function."""
    model, _ = assemble([calls.sampler()])
    plain, _ = rewriter.inline(model)
    assert [n.op_type for n in plain.graph.node if n.op_type != "Constant"] == [
        "Transpose", "MatMul", "Reshape", "MatMul", "Reshape", "GridSample"]


def test_a_stock_model_is_found_again(assemble, calls):
    model, _ = assemble([calls.sampler("nearest", "reflection", 1, 0), calls.grid(1, spatial=(3, 4, 5))])
    again, _ = rewriter.fuse(rewriter.inline(model)[0])
    nodes = [n for n in again.graph.node if n.domain]
    assert [n.op_type for n in nodes] == ["AffineGridSample", "AffineGrid"]
    assert {a.name: helper.get_attribute_value(a) for a in nodes[0].attribute}["align_corners"] == 1


@pytest.mark.parametrize("opset", [11, 12, 13, 18, 23])
def test_turns(assemble, run, domains, opset):
    x = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    uses = [("Rot90", {"x": x}, {"k": k, "axes": axes}) for k in (-1, 0, 1, 2, 3) for axes in ((2, 3), (3, 1), (-1, 0))]
    uses += [("CustomRotScale", {"x": x}, {"rotations": k, "scale_factor": 0.1, "dims": "width,depth"}) for k in (1, 2)]
    model, feeds = assemble(uses, opset)
    plain, _ = rewriter.inline(model)
    assert domains(plain) == {""}
    for got, (op_type, operands, attributes) in zip(run(plain, feeds).values(), uses):
        np.testing.assert_array_equal(got, OPERATORS[op_type].reference(**operands, **attributes))


def test_defaults_are_those_of_the_operators():
    for name, attributes in DEFAULTS.items():
        assert list(attributes) == [attribute for attribute, _ in OPERATORS[name].attributes]
        for (_, text), value in zip(OPERATORS[name].attributes, attributes.values()):
            said = f'"{value}"' if isinstance(value, str) else ", ".join(f"{n:g}" for n in np.atleast_1d(value))
            assert f"default {said}" in text


@pytest.mark.parametrize(("opset", "mode"), [(16, "linear"), (20, "bilinear"), (20, None)])
def test_attributes_left_out_and_either_spelling(assemble, calls, run, opset, mode):
    use = calls.sampler()
    model, feeds = assemble([use], opset)
    del model.graph.node[0].attribute[:]
    if mode:
        model.graph.node[0].attribute.append(helper.make_attribute("mode", mode))
    plain, _ = rewriter.inline(model)
    np.testing.assert_allclose(run(plain, feeds)["y0"], calls.by_torch(use), atol=1e-5)


def test_bodies_and_functions(run, domains):
    """Nodes in an If, in a Loop and in a function of the model's own; names stay unique across them."""
    model = fused_text("""
        <ir_version: 8, opset_import: ["" : 18, "custom.ops" : 1, "mine" : 1]>
        agraph (float[2, 3] x, bool c) => (float[R, C] y, float[2, 3] z, float[3, 2] w) {
            y = If (c) <
                then_branch = yes () => (float[R, C] a) { a = custom.ops.Rot90 <k = 1, axes = [0, 1]> (x) },
                else_branch = no () => (float[R, C] a) { a = custom.ops.Rot90 <k = 2, axes = [0, 1]> (x) }>
            n = Constant <value_int = 3> ()
            z = Loop (n, , x) <body = turn (int64 i, bool on, float[2, 3] s) => (bool more, float[2, 3] t) {
                more = Identity (on)
                t = custom.ops.CustomRotScale <rotations = 2, scale_factor = 2.0, dims = "height,width"> (s)
            }>
            w = mine.f (x)
        }
        <domain: "mine", opset_import: ["" : 18, "custom.ops" : 1]>
        f (x) => (y) { a = custom.ops.Rot90 <k = 3, axes = [0, 1], perm = [1, 0]> (x) y = Neg (a) }
    """)
    plain, report = rewriter.inline(model)
    assert report.retargeted == 4 and domains(plain) == {"", "mine"} and [f.name for f in plain.functions] == ["f"]
    assert "custom.ops" not in {o.domain for f in plain.functions for o in f.opset_import}
    onnx.checker.check_model(plain, full_check=True)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for c in (True, False):
        got = run(plain, {"x": x, "c": np.array(c)})
        np.testing.assert_array_equal(got["y"], np.rot90(x, 1 if c else 2))
        np.testing.assert_array_equal(got["z"], np.rot90(x, 6) * 8)
        np.testing.assert_array_equal(got["w"], -np.rot90(x, 3))


def test_what_is_not_ours_stays(run):
    """A function of the same domain that somebody else wrote, its import, names, metadata and docs."""
    model = fused_text("""
        <ir_version: 10, opset_import: ["" : 18, "custom.ops" : 1], doc_string: "of the model">
        agraph (float[2, 3] x) => (float[3, 2] y, float[2, 3] z) {
            y = custom.ops.Rot90 <k = 1, axes = [0, 1]> (x)
            z = custom.ops.Twice (x)
        }
        <domain: "custom.ops", opset_import: ["" : 18]>
        Twice (x) => (y) { y = Add (x, x) }
    """)
    node = model.graph.node[0]
    node.name, node.doc_string = "turn", "turns"
    node.metadata_props.add(key="layer", value="head")
    model.metadata_props.add(key="author", value="somebody")
    plain, report = rewriter.inline(model)
    assert report.retargeted == 1 and [f.name for f in plain.functions] == ["Twice"]
    assert {o.domain for o in plain.opset_import} == {"", "custom.ops"} and plain.doc_string == "of the model"
    assert plain.metadata_props == model.metadata_props and plain.graph.output == model.graph.output
    made = plain.graph.node[:-1]
    assert all({"layer": "head"}.items() <= {p.key: p.value for p in n.metadata_props}.items() for n in made)
    assert all(n.doc_string == "turns" and n.name.startswith("turn/") for n in made)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = run(plain, {"x": x})
    np.testing.assert_array_equal(got["y"], np.rot90(x))
    np.testing.assert_array_equal(got["z"], 2 * x)


def test_names_that_are_taken(run):
    model = fused_text("""
        <ir_version: 8, opset_import: ["" : 18, "custom.ops" : 1]>
        agraph (float[2, 3] x) => (float[2, 3] y) {
            a = custom.ops.Rot90 <k = 1, axes = [0, 1]> (x)
            y = custom.ops.Rot90 <k = 3, axes = [0, 1]> (a)
        }
    """)
    model.graph.node[0].name = model.graph.node[1].name = "same"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    first, _ = rewriter.inline(model)
    names = [n for node in first.graph.node for n in (node.name, *node.output)]
    assert len(names) == len(set(names)) + sum(node.name in node.output for node in first.graph.node)
    np.testing.assert_array_equal(run(first, {"x": x})["y"], x)
    assert rewriter.inline(model)[0] == first  # the same on every run


def test_types_lost_on_the_way(assemble, calls, run):
    """Inside a chain without value_info what an earlier run wrote on the nodes is enough."""
    use = calls.grid(dtype=np.float64)
    model, feeds = assemble([use])
    turned = fused_text("""
        <ir_version: 8, opset_import: ["" : 20, "custom.ops" : 1]>
        agraph (double[N, H, W, D] y0) => (double[A, B, C, E] y1) {
            y1 = custom.ops.Rot90 <k = 1, axes = [1, 2]> (y0)
        }
    """)
    both = onnx.compose.merge_graphs(model.graph, turned.graph, [("y0", "y0")])
    del model.graph.node[:], model.graph.output[:]
    model.graph.node.extend(both.node)
    model.graph.output.extend(both.output)
    model.functions.extend(turned.functions)
    plain, _ = rewriter.inline(model)
    got = run(plain, feeds)
    np.testing.assert_allclose(got["y1"], np.rot90(calls.by_torch(use), 1, (1, 2)), atol=1e-12)


def test_operators_of_a_later_release(run):
    """Their functions are in the file; an attribute left out takes the function's default."""
    model = fused_text("""
        <ir_version: 9, opset_import: ["" : 18, "custom.ops" : 1]>
        agraph (float[2, 3] x) => (float[3, 2] y) { y = custom.ops.Rot90 <k = 1, axes = [0, 1]> (x) }
    """)
    model.graph.node[0].op_type = model.functions[0].name = "Later"
    function = model.functions[0]
    function.attribute.remove("perm")
    function.attribute_proto.append(helper.make_attribute("perm", [1, 0]))
    given = [a for a in model.graph.node[0].attribute if a.name != "perm"]
    del model.graph.node[0].attribute[:]
    model.graph.node[0].attribute.extend(given)
    plain, report = rewriter.inline(model)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert report.retargeted == 1 and not plain.functions
    np.testing.assert_array_equal(run(plain, {"x": x})["y"], np.rot90(x))


def test_every_kind_of_model(tmp_path, assemble, calls):
    gs = pytest.importorskip("onnx_graphsurgeon")
    model, _ = assemble([calls.sampler()])
    before = model.SerializeToString()
    plain, report = rewriter.inline(model)
    assert model.SerializeToString() == before and report.changed
    assert rewriter.inline(model, dry_run=True)[0] is model
    held = ir.serde.deserialize_model(model)
    assert isinstance(rewriter.inline(held)[0], ir.Model) and len(held.functions) == 1
    assert rewriter.inline(held, in_place=True)[0] is held and not held.functions
    graph, _ = rewriter.inline(gs.import_onnx(model))
    assert {n.domain for n in graph.nodes} <= {None, ""} and not graph.functions
    onnx.save(model, tmp_path / "fused.onnx")
    report = rewriter.inline(tmp_path / "fused.onnx", tmp_path / "plain.onnx")
    assert report.retargeted == 1 and onnx.load(tmp_path / "plain.onnx") == plain
    assert report.bytes_after == (tmp_path / "plain.onnx").stat().st_size


def test_nothing_of_ours_is_nothing_done(tmp_path):
    path = CORPUS[0].parent / "perspective.onnx"
    report = rewriter.inline(path, tmp_path / "out.onnx")
    assert not report.changed and (tmp_path / "out.onnx").read_bytes() == path.read_bytes()


def test_command_line(tmp_path, capsys):
    assert main([str(CORPUS[0].parent / "pair_18.onnx"), str(tmp_path / "a.onnx"), "--target", "stock"]) == 0
    said = capsys.readouterr().out
    assert "AffineGridSample" in said and "target stock: 1 node written for it" in said
    assert not onnx.load(tmp_path / "a.onnx").functions
    with pytest.raises(SystemExit) as left:
        main(["a.onnx", "b.onnx", "--target", "coreml"])
    assert left.value.code == 2
    with pytest.raises(rewriter.RewriterError, match="there are portable, kernels, stock, openvino, tensorrt"):
        rewriter.fuse(onnx.ModelProto(), target="coreml")
