"""Whole comparisons of small models; no time is asserted."""

from __future__ import annotations

import importlib.util
import os

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from small_models import externalize, feeds, plain, stn

import rewriter
from rewriter.comparing import comparison, variants
from rewriter.comparing.comparison import Settings, compare_sides
from rewriter.comparing.models import from_path
from rewriter.comparing.page import html
from rewriter.errors import InterfaceError, RunError, UsageError

OPENVINO = importlib.util.find_spec("openvino") is not None


@pytest.fixture(autouse=True)
def only_onnxruntime(monkeypatch, request):
    """The same wherever the tests run, and quick; with `everywhere` OpenVINO is there too."""
    monkeypatch.setattr(variants, "_library", lambda: (None, "not in this test"))
    if "everywhere" not in request.fixturenames:
        original = comparison.plan
        monkeypatch.setattr(comparison, "plan", lambda *args, **keywords: [
            item for item in original(*args, **keywords) if not item.variant.key.startswith("openvino")])


@pytest.fixture
def everywhere():
    """With OpenVINO."""


@pytest.mark.skipif(not OPENVINO, reason="openvino is not installed")
def test_openvino(everywhere):
    result = rewriter.compare(stn(), seconds=0, threads=1)
    unfused, fused = (result.variant(f"openvino-{model}") for model in ("unfused", "fused"))
    assert unfused.ran and fused.ran and unfused.good and fused.good
    assert fused.faster is not None and fused.against == "openvino-unfused"
    assert unfused.runtime.startswith("OpenVINO ") and fused.runtime.startswith(f"{unfused.runtime}")


def test_parity_is_what_a_direct_measurement_says(run):
    model, arrays = stn(), feeds()
    fused, _ = rewriter.fuse(model)
    result = rewriter.compare(model, fused, inputs=arrays, seconds=0, threads=1)
    before, after = run(model, arrays)["y"].astype(np.float64), run(fused, arrays)["y"].astype(np.float64)
    (error,) = result.variant("onnxruntime-fused").errors
    assert error.absolute == np.abs(after - before).max()
    big = np.abs(before) >= 1e-3 * np.abs(before).max()
    assert error.relative == pytest.approx((np.abs(after - before)[big] / np.abs(before[big])).max())
    assert error.exact < 1e-5 and error.good
    assert sum(count for _, count in result.histogram) == before.size
    assert result.agrees and result.float64 == "all of it in ONNX Runtime"

    unfused, control = result.variant("onnxruntime-unfused"), result.variant("control")
    assert unfused.errors == [] and control.errors[0].absolute == 0
    for variant in (unfused, control, result.variant("onnxruntime-fused")):
        assert variant.ran and variant.times.rounds >= 5 and variant.creation > 0
        assert variant.memory is None or variant.memory > 0
    assert result.variant("onnxruntime-fused").faster.low <= result.variant("onnxruntime-fused").faster.high
    assert result.variant("onnxruntime-kernels").missing == "not in this test"
    assert "not given a torch module" in result.variant("torch").missing
    assert result.before.share > 0.5 and result.after.share > 0.5
    assert len(result.fragments) == 1 and result.unfused.nodes == 4
    assert result.to_dict()["variants"][0]["key"] == "onnxruntime-unfused"
    assert "AffineGridSample" in html(result)


def broken(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same with a base grid that is off."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    base = next(tensor for tensor in copy.graph.initializer if tensor.name == "base")
    base.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(base) * np.float32(1.01), "base"))
    return copy


def test_a_mismatch():
    result = rewriter.compare(stn(), broken(stn()), seconds=0, threads=1)
    assert not result.agrees and "MISMATCH" in result.to_dict()["verdict"]
    assert "onnxruntime-fused" in [variant.key for variant in result.mismatched]


def test_one_variant_that_fails_leaves_the_others():
    alien = rewriter.fuse(stn())[0]
    del alien.functions[:]  # as a file for kernels only
    result = rewriter.compare(stn(), alien, seconds=0, threads=1, providers=["NoSuchExecutionProvider"])
    assert result.variant("onnxruntime-fused").failed.startswith("does not load: ")
    assert "\n" not in result.variant("onnxruntime-fused").failed
    assert result.variant("onnxruntime-unfused").ran
    assert "has no NoSuchExecutionProvider; it has" in result.variant("NoSuch-fused").missing
    assert not result.agrees


def test_a_library_that_is_none(monkeypatch, tmp_path):
    (tmp_path / "lib.so").write_bytes(b"no library")
    monkeypatch.setattr(variants, "_library", lambda: (str(tmp_path / "lib.so"), ""))
    result = rewriter.compare(stn(), seconds=0, threads=1)
    assert result.variant("onnxruntime-kernels").failed.startswith("does not load: ")
    assert result.agrees


def test_torch_eager():
    torch = pytest.importorskip("torch")
    from small_models import HEIGHT, WIDTH

    class Sampler(torch.nn.Module):
        def forward(self, x, theta):
            grid = torch.nn.functional.affine_grid(theta, (1, 3, HEIGHT, WIDTH), align_corners=False)
            return torch.nn.functional.grid_sample(x, grid, align_corners=False)

    module, threads = Sampler().train(), torch.get_num_threads()
    result = rewriter.compare(stn(), seconds=0, threads=1, module=module)
    eager = result.variant("torch")
    assert eager.runtime.startswith("torch ") and eager.good and eager.times and eager.memory is None
    assert eager.errors[0].output == "y" and eager.errors[0].absolute < 1e-4
    assert module.training and torch.get_num_threads() == threads


@pytest.mark.parametrize(("other", "message"), [
    (plain(), "has an input 'theta' and|has an input 'x' and|input 'x' is"),
    (None, "output 'y' is float\\[1, 3, 24, 40\\] in .* and float\\[1, 3, 24, 41\\]"),
])
def test_two_that_are_not_one_model(other, message):
    if other is None:
        other = stn()
        other.graph.output[0].type.tensor_type.shape.dim[3].dim_value = 41
    with pytest.raises(InterfaceError, match=message):
        rewriter.compare(stn(), other, seconds=0)


def test_no_runtime_runs_it():
    model = stn()
    next(item for item in model.graph.node[3].attribute if item.name == "mode").s = b"bicubic"  # not at opset 20
    with pytest.raises(RunError, match="no runtime can run the unfused model; ORT unfused does not load"):
        rewriter.compare(model, model, seconds=0, threads=1)


def test_arguments_that_do_not_fit():
    with pytest.raises(UsageError, match="open dim 'H'; all are fixed"):
        rewriter.compare(stn(), dims={"H": 3})
    with pytest.raises(UsageError, match="no input 'z'"):
        rewriter.compare(stn(), inputs={"z": (1,)})
    with pytest.raises(UsageError, match="no pattern is named"):
        rewriter.compare(stn(), patterns=["nope"])


def test_external_data_in_another_folder(tmp_path):
    model = externalize(stn(extra_node=True), "bias", location="bias.bin")
    bias = next(tensor for tensor in stn(extra_node=True).graph.initializer if tensor.name == "bias")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bias.bin").write_bytes(bias.raw_data)
    onnx.save(model, tmp_path / "in" / "m.onnx")
    result = rewriter.compare(tmp_path / "in" / "m.onnx", seconds=0, threads=1)
    assert result.agrees and not [variant.failed for variant in result.variants if variant.failed]
    assert result.unfused.bytes == os.path.getsize(tmp_path / "in" / "m.onnx") + len(bias.raw_data)
    assert result.before is not None and result.after is not None


def test_a_model_that_is_random_is_told(tmp_path):
    model = plain(("Relu", "Sin"))
    model.graph.node[1].CopyFrom(onnx.helper.make_node("RandomUniformLike", ["v0"], ["y"]))
    onnx.save(model, tmp_path / "m.onnx")
    side = from_path(tmp_path / "m.onnx")
    result = compare_sides(side, side, Settings(seconds=0, threads=1))
    assert not result.stable and not result.mismatched
    assert "cannot be judged" in result.to_dict()["verdict"]
