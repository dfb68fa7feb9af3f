"""What comes in: five kinds that stay as they are, and every way in which a file can lie."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper
from small_models import HEIGHT, WIDTH, base_grid, externalize, feeds, plain, stn

import rewriter
from rewriter import checking, lossless
from rewriter.errors import (
    DirectoryError,
    ExternalDataError,
    InvalidModelError,
    MissingFileError,
    NotOnnxError,
    UsageError,
)
from rewriter.opening import open_model

# --- files that are no models

@pytest.mark.parametrize("content", [
    b"", b"hello", bytes(64), b"\xff" * 100, b"PK\x03\x04rest", b"version https://git-lfs.github.com/spec/v1\n",
    b'{"irVersion": "8"}', b"\x18\x00\x00\x00ORTM" + bytes(40), plain().SerializeToString()[:-10],
    b"\x7fELF" + bytes(60),
])
def test_not_onnx(tmp_path, content):
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(NotOnnxError, match=r"m\.onnx: ") as refused:
        rewriter.fuse(tmp_path / "m.onnx", tmp_path / "out.onnx")
    assert "\n" not in str(refused.value)
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_hints(tmp_path):
    for content, hint in ((b"", "empty"), (b"version https://git-lfs", "git lfs pull"), (b"PK\x03\x04", "zip"),
                          (b"\x18\x00\x00\x00ORTM" + bytes(9), "ONNX Runtime's own format")):
        (tmp_path / "m.onnx").write_bytes(content)
        with pytest.raises(NotOnnxError, match=hint):
            open_model(tmp_path / "m.onnx")


def test_cut_short_anywhere(tmp_path):
    data = stn().SerializeToString()
    for length in [*range(200), *range(200, len(data), 97), len(data) - 1]:
        (tmp_path / "m.onnx").write_bytes(data[:length])
        with pytest.raises((NotOnnxError, InvalidModelError)):
            open_model(tmp_path / "m.onnx")


def test_no_such_file_and_directory(tmp_path):
    with pytest.raises(MissingFileError, match="no such file"):
        open_model(tmp_path / "none.onnx")
    with pytest.raises(MissingFileError):
        open_model("a\0b")
    with pytest.raises(DirectoryError, match="directory"):
        open_model(str(tmp_path))
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(NotOnnxError, match="not a regular file"):
        open_model(tmp_path / "fifo")


def test_larger_than_protobuf(tmp_path):
    with open(tmp_path / "m.onnx", "wb") as file:
        file.truncate(1 << 32)  # no block of it is written
    with pytest.raises(NotOnnxError, match="2 GiB"):
        open_model(tmp_path / "m.onnx")


# --- models that are refused, and one that is repaired

def _undefined():
    model = plain()
    model.graph.node[0].input[0] = "nowhere"
    return model


def _cycle():
    model = plain()
    model.graph.node[0].input[0] = "y"
    return model


def _duplicate():
    model = plain()
    model.graph.node[1].output[0] = "v0"
    return model


def _no_opset():
    model = plain()
    del model.opset_import[:]
    return model


def _unknown_operator():
    return plain(("Relu", "Frobnicate"))


def _short_tensor():
    model = stn()
    model.graph.initializer[0].raw_data = b"abc"
    return model


@pytest.mark.parametrize("make", [_undefined, _cycle, _duplicate, _no_opset, _unknown_operator, _short_tensor])
@pytest.mark.parametrize("kind", ["path", "proto"])
def test_refused_by_the_checker(tmp_path, make, kind):
    model = make()
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError:
        pass
    else:
        pytest.skip(f"onnx {onnx.__version__} does not refuse it")
    if kind == "path":
        onnx.save(model, tmp_path / "m.onnx")
        model = tmp_path / "m.onnx"
    with pytest.raises(InvalidModelError, match=r"onnx\.checker refuses it") as refused:
        open_model(model)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("make", [_undefined, _cycle, _unknown_operator])
def test_refused_as_onnx_ir(make):
    with pytest.raises(InvalidModelError, match=r"onnx\.checker refuses it"):
        rewriter.fuse(ir.from_proto(make()))


def test_unsorted_nodes_are_sorted(tmp_path, run):
    model = stn()
    shuffled = [model.graph.node[i] for i in (3, 1, 2, 0)]
    unsorted = onnx.ModelProto()
    unsorted.CopyFrom(model)
    del unsorted.graph.node[:]
    unsorted.graph.node.extend(shuffled)
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(unsorted)
    onnx.save(unsorted, tmp_path / "m.onnx")
    report = rewriter.fuse(tmp_path / "m.onnx", tmp_path / "out.onnx")
    assert report.count("AffineGridSample") == 1
    np.testing.assert_allclose(run(onnx.load(tmp_path / "out.onnx"), feeds())["y"], run(model, feeds())["y"], atol=1e-5)
    rewriter.fuse(tmp_path / "m.onnx", tmp_path / "same.onnx", patterns=[])
    assert (tmp_path / "same.onnx").read_bytes() == (tmp_path / "m.onnx").read_bytes()


def test_large_models_are_checked_without_their_weights():
    model = stn(extra_node=True)
    assert checking.complaint(model, largest=100) is None
    bad = stn(extra_node=True)
    bad.graph.node[-1].op_type = "Frobnicate"
    assert "Frobnicate" in checking.complaint(bad, largest=100)
    assert checking.lean_proto(ir.from_proto(model)).ByteSize() < model.ByteSize() / 10
    assert "Frobnicate" in checking.complaint_ir(ir.from_proto(bad))


def test_checking_sees_into_bodies_and_functions():
    body = helper.make_graph([helper.make_node("Frobnicate", ["x"], ["z"])], "body", [],
                             [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])])
    model = plain()
    model.graph.node.append(helper.make_node("If", ["c"], ["w"], then_branch=body, else_branch=body))
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    assert "Frobnicate" in checking.complaint(model, largest=10)
    model = plain()
    model.functions.append(helper.make_function(
        "own", "F", ["a"], ["b"], [helper.make_node("Frobnicate", ["a"], ["b"])], [helper.make_opsetid("", 18)]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    assert "Frobnicate" in checking.complaint(model, largest=10)


# --- external data that lies

BASE = base_grid().tobytes()


def _missing(folder):
    return {"location": "none.bin"}


def _parent(folder):
    (folder.parent / "base.bin").write_bytes(BASE)
    return {"location": "../base.bin"}


def _hidden_parent(folder):
    (folder / "sub").mkdir()
    (folder / "base.bin").write_bytes(BASE)
    return {"location": "sub/../base.bin"}


def _windows_parent(folder):
    return {"location": "..\\base.bin"}


def _absolute(folder):
    (folder / "base.bin").write_bytes(BASE)
    return {"location": str(folder / "base.bin")}


def _windows_absolute(folder):
    return {"location": "C:\\base.bin"}


def _empty(folder):
    return {"location": ""}


def _link_out(folder):
    (folder.parent / "base.bin").write_bytes(BASE)
    (folder / "base.bin").symlink_to(folder.parent / "base.bin")
    return {"location": "base.bin"}


def _folder_link_out(folder):
    (folder.parent / "out").mkdir()
    (folder.parent / "out/base.bin").write_bytes(BASE)
    (folder / "sub").symlink_to(folder.parent / "out")
    return {"location": "sub/base.bin"}


def _hard_link(folder):
    (folder.parent / "base.bin").write_bytes(BASE)
    os.link(folder.parent / "base.bin", folder / "base.bin")
    return {"location": "base.bin"}


def _fifo(folder):
    os.mkfifo(folder / "base.bin")
    return {"location": "base.bin"}


def _directory(folder):
    (folder / "base.bin").mkdir()
    return {"location": "base.bin"}


def _cut_short(folder):
    (folder / "base.bin").write_bytes(BASE[:-1])
    return {"location": "base.bin"}


def _beyond_the_end(folder):
    (folder / "base.bin").write_bytes(BASE)
    return {"location": "base.bin", "offset": 4, "length": len(BASE)}


def _huge_offset(folder):
    (folder / "base.bin").write_bytes(BASE)
    return {"location": "base.bin", "offset": 1 << 63, "length": len(BASE)}


def _other_length(folder):
    (folder / "base.bin").write_bytes(BASE + BASE)
    return {"location": "base.bin", "offset": 0, "length": len(BASE) + 4}


def _loop(folder):
    (folder / "base.bin").symlink_to("base.bin")
    return {"location": "base.bin"}


LIES = [_missing, _parent, _hidden_parent, _windows_parent, _absolute, _windows_absolute, _empty, _link_out,
        _folder_link_out, _hard_link, _fifo, _directory, _cut_short, _beyond_the_end, _huge_offset, _other_length,
        _loop]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("kind", ["path", "proto", "ir"])
def test_external_data_that_lies(folder, lie, kind):
    onnx.save(externalize(stn(), "base", **lie(folder)), folder / "m.onnx")
    before = sorted(os.listdir(folder))
    model, options = {
        "path": lambda: (folder / "m.onnx", {"output": folder / "out.onnx"}),
        "proto": lambda: (onnx.load(folder / "m.onnx", load_external_data=False), {"data_dir": folder}),
        "ir": lambda: (ir.load(folder / "m.onnx"), {}),
    }[kind]()
    with pytest.raises(ExternalDataError, match="tensor 'base'") as refused:
        rewriter.fuse(model, **options)
    assert "\n" not in str(refused.value)
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize("entries", [{"location": "base.bin", "offset": "x"}, {"location": "base.bin", "offset": -1},
                                     {"location": "base\0.bin"}, {"offset": 0}])
def test_external_data_that_makes_no_sense(folder, entries):
    (folder / "base.bin").write_bytes(BASE)
    onnx.save(externalize(stn(), "base", **entries), folder / "m.onnx")
    with pytest.raises((ExternalDataError, InvalidModelError)):
        open_model(folder / "m.onnx")


def test_external_data_in_constants_bodies_and_functions(folder):
    tensor = TensorProto(name="t", data_type=TensorProto.FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="none.bin")
    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    info = helper.make_tensor_value_info("c", TensorProto.FLOAT, [2, 3])
    body = helper.make_graph([constant], "body", [], [info])
    holder = helper.make_graph([], "holder", [],
                               [helper.make_tensor_value_info("t", TensorProto.FLOAT, [2, 3])], [tensor])
    add = helper.make_node("Add", ["a", "c"], ["b"])
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])

    direct, in_body, in_holder, in_function = (plain() for _ in range(4))
    direct.graph.node.append(constant)
    for model, branch in ((in_body, body), (in_holder, holder)):
        model.graph.input.append(flag)
        model.graph.node.append(helper.make_node("If", ["flag"], ["w"], then_branch=branch, else_branch=branch))
    in_function.functions.append(helper.make_function(
        "own", "F", ["a"], ["b"], [constant, add], [helper.make_opsetid("", 18)]))
    in_function.opset_import.append(helper.make_opsetid("own", 1))
    for model in (direct, in_body, in_holder, in_function):
        onnx.save(model, folder / "m.onnx")
        with pytest.raises(ExternalDataError, match=r"none\.bin"):
            open_model(folder / "m.onnx")
    (folder / "none.bin").write_bytes(bytes(24))
    for model in (direct, in_body, in_holder, in_function):
        onnx.save(model, folder / "m.onnx")
        assert open_model(folder / "m.onnx").data == model.SerializeToString()


def test_link_within_the_folder_is_fine(folder):
    (folder / "real.bin").write_bytes(BASE)
    (folder / "base.bin").symlink_to("real.bin")
    onnx.save(externalize(stn(), "base", location="base.bin"), folder / "m.onnx")
    assert rewriter.fuse(folder / "m.onnx", folder / "out.onnx").count("AffineGridSample") == 1


def test_weights_stay_on_disk(folder):
    """A data file of 4 GiB (sparse, so the test needs no disk) costs no memory: it is not read."""
    size = 1 << 32
    with open(folder / "weights.bin", "wb") as file:
        file.truncate(size)
    model = plain()
    model.graph.node.append(helper.make_node("Add", ["big", "big"], ["sum"]))
    weights = TensorProto(name="big", data_type=TensorProto.FLOAT, dims=[1024, size // 4096],
                          data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value="weights.bin")
    model.graph.initializer.append(weights)
    onnx.save(model, folder / "m.onnx")
    program = ("import resource, sys, rewriter; from patterns import ALL; peak = lambda: "
               "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; before = peak(); "
               "rewriter.fuse(*sys.argv[1:]); print(peak() - before)")
    done = subprocess.run([sys.executable, "-c", program, folder / "m.onnx", folder / "out.onnx"],
                          capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200_000  # KiB
    assert (folder / "out.onnx").read_bytes() == (folder / "m.onnx").read_bytes()


# --- the five kinds

def outputs(model, run):
    return run(model, feeds())["y"]


def test_proto_in_proto_out(run):
    model, twin = stn(), stn()
    fused, report = rewriter.fuse(model)
    assert model == twin
    assert report.count("AffineGridSample") == 1
    assert (report.bytes_before, report.bytes_after) == (model.ByteSize(), fused.ByteSize())
    np.testing.assert_allclose(outputs(fused, run), outputs(model, run), atol=1e-5)
    same, report = rewriter.fuse(model, in_place=True)
    assert same is model
    assert model.SerializeToString(deterministic=True) == fused.SerializeToString(deterministic=True)


def test_proto_in_which_nothing_fuses_comes_back_equal():
    model = plain()
    same, report = rewriter.fuse(model)
    assert same is not model
    assert same.SerializeToString() == model.SerializeToString()
    assert not report.changed


# AffineGrid's size is a Constant node, whose tensor has a name of its own
TRAPPED = """<ir_version: 8, opset_import: ["" : 20]> agraph (float[1, 2, 3] theta) => (float y) {
    size = Constant <value = int64[4] own {1, 3, 4, 5}> ()
    shape = Constant <value = int64[3] {-1, 2, 3}> ()
    same = Reshape (theta, shape)
    grid = AffineGrid (same, size)
    y = ReduceSum <keepdims = 0> (grid)
}"""


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("model", [TRAPPED, TRAPPED.replace("grid = AffineGrid (same, size)", "grid = Abs (same)")])
def test_the_callers_proto_is_never_written_to(model, in_place):
    model = onnx.parser.parse_model(model)
    before = model.SerializeToString(deterministic=True)
    result, report = rewriter.fuse(model, in_place=in_place)
    after = result.SerializeToString(deterministic=True)
    assert report.changed == (after != before)
    if not (in_place and report.changed):
        assert model.SerializeToString(deterministic=True) == before


def test_naming_the_tensors_of_an_opened_proto_leaves_it_alone():
    for model in (onnx.parser.parse_model(TRAPPED), stn()):
        before = model.SerializeToString(deterministic=True)
        opened = open_model(model)
        for node in opened.model.graph:
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.TENSOR:
                    attribute.as_tensor().name = "renamed"
        for value in list(opened.model.graph.initializers.values()):
            value.name = f"{value.name}_renamed"
        assert model.SerializeToString(deterministic=True) == before
        assert opened.result(False).SerializeToString(deterministic=True) == before


def test_proto_with_external_data_in_a_folder(folder, run):
    (folder / "base.bin").write_bytes(BASE)
    model = externalize(stn(), "base", location="base.bin")
    fused, report = rewriter.fuse(model, data_dir=folder)
    assert report.count("AffineGridSample") == 1
    np.testing.assert_allclose(outputs(fused, run), outputs(stn(), run), atol=1e-5)


def test_onnx_ir_in_onnx_ir_out(run):
    model = ir.from_proto(stn())
    before = ir.to_proto(model)
    fused, report = rewriter.fuse(model)
    assert isinstance(fused, ir.Model)
    assert ir.to_proto(model) == before
    assert report.count("AffineGridSample") == 1
    np.testing.assert_allclose(outputs(ir.to_proto(fused), run), outputs(stn(), run), atol=1e-5)
    same, _ = rewriter.fuse(model, in_place=True)
    assert same is model
    assert ir.to_proto(model) == ir.to_proto(fused)


def test_graphsurgeon_in_graphsurgeon_out(run):
    gs = pytest.importorskip("onnx_graphsurgeon")
    graph = gs.import_onnx(stn())
    fused, report = rewriter.fuse(graph)
    assert isinstance(fused, gs.Graph)
    assert report.count("AffineGridSample") == 1
    assert [node.op for node in graph.nodes] == ["Transpose", "MatMul", "Reshape", "GridSample"]
    assert [f.name for f in fused.functions] == ["AffineGridSample"]
    np.testing.assert_allclose(outputs(gs.export_onnx(fused), run), outputs(stn(), run), atol=1e-5)
    same, _ = rewriter.fuse(graph, in_place=True)
    assert same is graph
    np.testing.assert_allclose(outputs(gs.export_onnx(graph), run), outputs(stn(), run), atol=1e-5)
    untouched, report = rewriter.fuse(gs.import_onnx(plain()))
    assert isinstance(untouched, gs.Graph)
    assert gs.export_onnx(untouched) == gs.export_onnx(gs.import_onnx(plain()))


def test_onnx_program_in_onnx_program_out(export):
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def forward(self, x, theta):
            grid = torch.nn.functional.affine_grid(theta, [1, 3, HEIGHT, WIDTH], align_corners=False)
            return torch.nn.functional.grid_sample(x, grid, align_corners=False)

    arguments = tuple(torch.from_numpy(array) for array in feeds().values())
    program = torch.onnx.export(Net().eval(), arguments, dynamo=True, opset_version=18, verbose=False)
    before = [node.op_type for node in program.model.graph]
    expected = Net()(*arguments)
    fused, report = rewriter.fuse(program)
    assert type(fused) is type(program)
    assert report.count("AffineGridSample") == 1
    assert [node.op_type for node in program.model.graph] == before
    torch.testing.assert_close(fused(*arguments)[0], expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(program(*arguments)[0], expected, atol=1e-5, rtol=0)
    same, _ = rewriter.fuse(program, in_place=True)
    assert same is program
    assert "AffineGridSample" in [node.op_type for node in program.model.graph]
    torch.testing.assert_close(program(*arguments)[0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("convert", [lambda m: m, ir.from_proto])
def test_dry_run_hands_back_the_object_itself(convert):
    model = convert(stn())
    before = model.SerializeToString() if isinstance(model, onnx.ModelProto) else ir.to_proto(model)
    same, report = rewriter.fuse(model, dry_run=True, in_place=True)
    assert same is model
    assert report.count("AffineGridSample") == 1
    assert (model.SerializeToString() if isinstance(model, onnx.ModelProto) else ir.to_proto(model)) == before


def test_paths(tmp_path):
    onnx.save(stn(), tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="output"):
        rewriter.fuse(tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="output"):
        rewriter.fuse(stn(), tmp_path / "out.onnx")
    report = rewriter.fuse(str(tmp_path / "m.onnx"), dry_run=True)
    assert report.count("AffineGridSample") == 1
    assert os.listdir(tmp_path) == ["m.onnx"]
    assert rewriter.fuse(tmp_path / "m.onnx", in_place=True).bytes_after == (tmp_path / "m.onnx").stat().st_size


@pytest.mark.parametrize("other", [b"bytes", 3, None, object()])
def test_other_kinds_are_a_type_error(other):
    with pytest.raises(TypeError, match=type(other).__name__):
        rewriter.fuse(other)


def test_patterns_by_name():
    assert not rewriter.fuse(stn(), patterns=[])[1].fused
    operators = {f.operator for f in rewriter.fuse(stn(), patterns=["affine_grid"])[1].fused}
    assert operators == {"AffineGrid"}
    with pytest.raises(UsageError, match=r"'nope'; there are .*affine_grid"):
        rewriter.fuse(stn(), patterns=["nope"])


# --- what onnx_ir has no place for

def test_nothing_is_lost_beside_a_fused_node(folder, run):
    model = stn(extra_node=True)
    bias = next(t for t in model.graph.initializer if t.name == "bias")
    (folder / "bias.bin").write_bytes(bias.raw_data)
    model = externalize(model, "bias", location="bias.bin", offset=0, length=len(bias.raw_data), checksum="abc")
    model.training_info.add().initialization.name = "training"
    for holder in (model, model.graph, model.graph.node[-1], model.graph.input[0], model.graph.output[0],
                   next(t for t in model.graph.initializer if t.name == "bias")):
        holder.metadata_props.add(key="key", value="value")
        holder.doc_string = "documentation"
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(helper.make_tensor("sparse", TensorProto.FLOAT, [1], [2.0]))
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [1], [1]))
    sparse.dims.append(3)
    annotation = model.graph.quantization_annotation.add(tensor_name="y")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="bias")
    model.producer_name, model.producer_version, model.domain, model.model_version = "p", "1", "d", 7
    onnx.save(model, folder / "m.onnx")
    report = rewriter.fuse(folder / "m.onnx", folder / "out.onnx")
    assert report.count("AffineGridSample") == 1
    fused = onnx.load(folder / "out.onnx", load_external_data=False)
    for field in ("training_info", "metadata_props", "doc_string", "producer_name", "producer_version", "domain",
                  "model_version", "ir_version"):
        assert getattr(fused, field) == getattr(model, field), field
    for field in ("input", "output", "sparse_initializer", "metadata_props", "doc_string", "name",
                  "quantization_annotation"):
        assert getattr(fused.graph, field) == getattr(model.graph, field), field
    assert fused.graph.node[-1] == model.graph.node[-1]
    assert [t for t in fused.graph.initializer if t.name == "bias"] == [
        t for t in model.graph.initializer if t.name == "bias"]


def test_round_trip_of_sparse_initializers_in_a_body():
    body = helper.make_graph([helper.make_node("Add", ["x", "s"], ["z"])], "body", [],
                             [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])])
    sparse = body.sparse_initializer.add()
    sparse.values.CopyFrom(helper.make_tensor("s", TensorProto.FLOAT, [1], [2.0]))
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [1], [1]))
    sparse.dims.extend([2, 3])
    model = plain()
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    model.graph.node.append(helper.make_node("If", ["c"], ["w"], then_branch=body, else_branch=body))
    assert lossless.write(*lossless.read(model)).graph.node[-1].attribute == model.graph.node[-1].attribute
