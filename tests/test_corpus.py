"""Folders of real exported models with PyTorch's outputs, run through the command line.

`tests/corpus` is the project's own; WARPFUSE_CASES names another folder of the same layout:

    NAME.onnx       the model
    NAME.npz        in_<input> and out_<output> arrays
    manifest.json   a list of {"name", "expect": {"affine_grid", "affine_grid_sample_pairs", "rot90", "rot_scale"},
                    "atol", "rtol"} and, where they apply, "soft" (may be solved in another way), "ort" (false: ONNX
                    Runtime cannot run it), "ort_default_ok" (false: only without its optimizer), "alt_npz" (more data)

`rot90` counts all rotations, those with a scale included; `affine_grid` all grids, those in a sampler included.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from rewriter.cli import main

OWN = Path(__file__).parent / "corpus"
FOLDERS = [OWN, *(Path(f) for f in os.environ.get("WARPFUSE_CASES", "").split(os.pathsep) if f)]
CASES = [pytest.param(folder, case, id=case["name"]) for folder in FOLDERS
         for case in json.loads((folder / "manifest.json").read_text())]


def model_identity(model: onnx.ModelProto):
    """What a rewrite must keep."""
    return (
        [v.SerializeToString() for v in model.graph.input], [v.name for v in model.graph.output],
        sorted((p.key, p.value) for p in model.metadata_props), model.doc_string, model.producer_name,
        model.producer_version, model.graph.name,
        sorted((o.domain, o.version) for o in model.opset_import if o.domain != "custom.ops"))


def with_float32_border(model: onnx.ModelProto) -> onnx.ModelProto:
    """numpy cannot hand bfloat16 to ONNX Runtime: Casts at such inputs and outputs."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for values, inward in ((wide.graph.input, True), (wide.graph.output, False)):
        for value in values:
            if value.type.tensor_type.elem_type != onnx.TensorProto.BFLOAT16:
                continue
            outer, inner = f"{value.name}.float32", value.name
            pair = (outer, inner) if inward else (inner, outer)
            to = onnx.TensorProto.BFLOAT16 if inward else onnx.TensorProto.FLOAT
            cast = onnx.helper.make_node("Cast", pair[:1], pair[1:], to=to)
            wide.graph.node.insert(0 if inward else len(wide.graph.node), cast)
            value.name = outer
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return wide


def outputs(run, model: onnx.ModelProto, arrays, optimize: bool) -> dict[str, np.ndarray]:
    wide = with_float32_border(model)
    feeds = {v.name: arrays["in_" + v.name.removesuffix(".float32")] for v in wide.graph.input
             if "in_" + v.name.removesuffix(".float32") in arrays}
    return {name.removesuffix(".float32"): value for name, value in run(wide, feeds, optimize=optimize).items()}


@pytest.mark.parametrize(("folder", "case"), CASES)
def test_case(folder, case, tmp_path, run, custom, capsys):
    source, fused_path, again_path = folder / f"{case['name']}.onnx", tmp_path / "fused.onnx", tmp_path / "again.onnx"
    for start, end in ((source, fused_path), (fused_path, again_path)):
        assert main([str(start), str(end)]) == 0, capsys.readouterr().err
    assert fused_path.read_bytes() == again_path.read_bytes()
    before, after = onnx.load(source), onnx.load(fused_path)
    onnx.checker.check_model(after)
    assert model_identity(before) == model_identity(after)
    found, expected = custom(after), case["expect"]
    if not found and not case.get("soft"):
        assert source.read_bytes() == fused_path.read_bytes()
    if not case.get("soft"):
        pairs, scaled = found.get("AffineGridSample", 0), found.get("CustomRotScale", 0)
        assert pairs >= expected["affine_grid_sample_pairs"]
        assert found.get("AffineGrid", 0) + pairs >= expected["affine_grid"]
        assert scaled >= expected["rot_scale"]
        assert found.get("Rot90", 0) + scaled >= expected["rot90"]
    if not case.get("ort", True):
        return
    for data in [f"{case['name']}.npz", *case.get("alt_npz", [])]:
        arrays = dict(np.load(folder / data))
        optimize = case.get("ort_default_ok", True)
        unfused, fused = outputs(run, before, arrays, optimize), outputs(run, after, arrays, optimize)
        for name, got in fused.items():
            if "out_" + name in arrays:
                hold(name, got, unfused[name], arrays["out_" + name], case["atol"], case["rtol"])


def hold(name, got, unfused, want, atol, rtol):
    """No worse than twice the unfused error, or within the tolerance."""
    assert got.shape == want.shape
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    got, unfused, want = (a.astype(np.float64) for a in (got, unfused, want))
    assert np.array_equal(np.isnan(got), np.isnan(want))
    error, own = (float(np.nanmax(np.abs(a - want), initial=0.0)) for a in (got, unfused))
    scale = float(np.nanmax(np.abs(want), initial=0.0))
    assert error <= max(2 * own, atol + rtol * scale), f"{name}: off by {error:.3g}, unfused by {own:.3g}"


STORED = sorted((OWN / "fused").glob("*/*.onnx"))


@pytest.mark.parametrize("path", STORED, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_files_fused_by_earlier_releases_still_run(path, run):
    arrays = dict(np.load(path.with_suffix(".npz")))
    feeds = {name.removeprefix("in_"): array for name, array in arrays.items() if name.startswith("in_")}
    for name, got in run(onnx.load(path), feeds).items():
        np.testing.assert_allclose(got, arrays["out_" + name], rtol=0, atol=2e-3 if got.dtype == np.float16 else 1e-5)


def test_files_fused_by_earlier_releases_are_left_as_they_are(tmp_path, capsys):
    assert STORED
    for path in STORED:
        assert main([str(path), str(tmp_path / "out.onnx")]) == 0, capsys.readouterr().err
        assert (tmp_path / "out.onnx").read_bytes() == path.read_bytes()
