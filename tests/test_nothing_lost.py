"""What is not fused comes out as it came in: to the byte where nothing is fused, to every field where something is."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest
from ir_features import DATA, FEATURES, strange
from nothing_lost import (
    ISLAND,
    LOWEST,
    add_island,
    alone,
    as_expected,
    beside,
    changed,
    differences,
    gives,
    opset,
    suite,
    without_island,
)
from onnx import TensorProto, helper
from small_models import HEIGHT, WIDTH, stn

import rewriter
from rewriter.cli import main
from rewriter.stand_ins import graphs

FOLDERS = [Path(__file__).parent / "corpus",
           *(Path(name) for name in os.environ.get("WARPFUSE_CASES", "").split(os.pathsep) if name)]
SHARES = 8  # the backend test suite is gone through in so many tests, for as many processes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with the files of external data."""
    for name, data in DATA.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("make", FEATURES.values(), ids=FEATURES)
def test_a_feature_alone(folder, make, capsys):
    model = make()
    onnx.checker.check_model(model)
    assert alone(model)[0] == "byte for byte"
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    assert main(["m.onnx", "out.onnx"]) == 0, capsys.readouterr().err
    assert (folder / "out.onnx").read_bytes() == (folder / "m.onnx").read_bytes()


@pytest.mark.parametrize("make", FEATURES.values(), ids=FEATURES)
def test_a_feature_beside_an_island(folder, make):
    for seed in (0, 3):
        assert beside(make(), seed)[0] == ("byte for byte" if opset(make()) < LOWEST else "fused")


@pytest.mark.parametrize("name", [name for name, make in FEATURES.items() if len(list(graphs(make()))) > 1])
def test_an_island_in_a_body(folder, name):
    """Of the branches, loops and scans; a list of graphs is nothing that is looked into."""
    fused_in = 0
    for index in range(1, len(list(graphs(FEATURES[name]())))):
        model, before = FEATURES[name](), FEATURES[name]()
        add_island(model, list(graphs(model))[index])
        model.graph.input.append(helper.make_tensor_value_info(f"{ISLAND}theta", TensorProto.FLOAT, [2, 2, 3]))
        fused, report = rewriter.fuse(model)
        assert differences(before, without_island(fused, before)) == []
        fused_in += report.count("AffineGrid")
    assert fused_in >= 1


@pytest.mark.parametrize("index", range(4))
def test_an_island_in_a_function(index):
    model = FEATURES["functions"]()
    before, island = FEATURES["functions"](), onnx.GraphProto()
    add_island(onnx.ModelProto(ir_version=3), island)  # weights as nodes: functions have no others
    theta = [helper.make_node("Constant", [], [f"{ISLAND}sizes"], value_ints=[2, 2, 3]),
             helper.make_node("Cast", ["a"], [f"{ISLAND}float"], to=TensorProto.FLOAT),
             helper.make_node("Reshape", [f"{ISLAND}float", f"{ISLAND}sizes"], [f"{ISLAND}theta"])]
    model.functions[index].node.extend([*theta, *island.node])
    model.functions[index].value_info.extend(island.value_info)
    fused, report = rewriter.fuse(model)
    assert report.count("AffineGrid") == 1
    assert differences(before, without_island(fused, before)) == []


def test_what_is_said_of_the_fused_value_stays():
    """Its documentation, metadata and quantization, as of an output and as of a value between nodes."""
    for model, name in ((stn(), "y"), (stn(extra_node=True), "sampled")):
        described = next((v for v in model.graph.output if v.name == name), None) or model.graph.value_info.add()
        described.CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, HEIGHT, WIDTH], "words"))
        for key in ("z", "a"):
            described.metadata_props.add(key=key, value=key)
        annotation = model.graph.quantization_annotation.add(tensor_name=name)
        annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="theta")
        fused, report = rewriter.fuse(model)
        assert report.count("AffineGridSample") == 1
        assert changed(model, fused) == []
        assert [v for v in (*fused.graph.output, *fused.graph.value_info) if v.name == name] == [described]
        assert list(fused.graph.quantization_annotation) == [annotation]


@pytest.mark.parametrize("pick", [
    lambda graph: graph.node[1], lambda graph: graph.initializer[0], lambda graph: graph.node[3].attribute[0]])
def test_fields_that_are_unknown_may_mean_anything(pick):
    """A node or tensor with such a field is not fused."""
    model = stn()
    strange(pick(model.graph))
    fused, report = rewriter.fuse(model)
    data = fused.SerializeToString()
    assert b"new" in data
    assert "AffineGridSample" not in {f.operator for f in report.fused}
    assert report.changed or data == model.SerializeToString()


@pytest.mark.parametrize("share", range(SHARES))
def test_the_backend_test_suite(share):
    """Every model alone and, if nothing in it is fused, beside an island."""
    assert len(suite()) > 1500
    failures = []
    for seed, case in enumerate(suite()[share::SHARES]):
        outcome, _ = alone(case.model)
        if outcome == "byte for byte":
            outcome, _ = beside(case.model, seed)
        if outcome not in ("byte for byte", "fused"):
            failures.append(f"{case.name}: {outcome}")
    assert not failures, "\n".join(failures)


def test_the_suites_own_outputs():
    """Of the models in which something is fused."""
    held = set()
    for case in suite():
        if "affine_grid" in case.name and case.data_sets and (fused := alone(case.model)[1]) is not None:
            assert as_expected(gives(case.model, case), case)
            assert as_expected(gives(fused, case), case)
            held.add(case.name)
    assert held == {"test_affine_grid_2d", "test_affine_grid_2d_align_corners", "test_affine_grid_3d",
                    "test_affine_grid_3d_align_corners"}


@pytest.mark.parametrize("path", [
    path for folder in FOLDERS for path in sorted(folder.glob("*.onnx"))], ids=lambda path: path.stem)
def test_real_models(path):
    """Of what is not fused every field stays, in its order."""
    assert alone(onnx.load(path))[0] in ("byte for byte", "fused")


def test_the_comparison_sees_every_field():
    """Each field of each message of a model, changed by itself, is found."""
    model = FEATURES["documentation_and_metadata_everywhere"]()

    def messages(message):
        yield message
        for field, items in message.ListFields():
            if field.message_type is not None:
                for item in items if hasattr(items, "extend") else [items]:
                    yield from messages(item)

    for index in range(len(list(messages(model)))):
        other = onnx.ModelProto()
        other.CopyFrom(model)
        touched = list(messages(other))[index]
        strange(touched)
        assert len(differences(model, other)) == 1
        touched.Clear()
        assert differences(model, other) or not list(messages(model))[index].ByteSize()
