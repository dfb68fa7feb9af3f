"""The examples run and do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_spatial_transformer(tmp_path):
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, EXAMPLES / "01_spatial_transformer.py", tmp_path], capture_output=True,
                          text=True, cwd=tmp_path, check=True)
    assert "AffineGridSample at" in done.stdout
    rows = re.findall(r"(\w+): +(\d+) nodes, ([\d,]+) bytes, differs from PyTorch by ([\d.e-]+)", done.stdout)
    (_, nodes, size, off), (_, fused_nodes, fused_size, fused_off) = rows
    assert int(fused_nodes) < int(nodes)
    assert int(fused_size.replace(",", "")) < int(size.replace(",", ""))
    assert float(fused_off) <= max(1e-5, 2 * float(off))


def test_the_model_it_ships_is_fused(tmp_path):
    import rewriter

    report = rewriter.fuse(EXAMPLES / "stn.onnx", tmp_path / "fused.onnx")
    assert report.count("AffineGridSample") == 1 and report.functions == ["AffineGridSample"]


def test_runtime_size(tmp_path):
    lines = output_of("03_runtime_size.py", tmp_path)
    assert lines[0].endswith("refuses a size that is an input")
    assert "warped[1, 3, out_h, out_w]" in lines[1] and lines[2].startswith("AffineGridSample at")
    assert [line.split(":")[0] for line in lines if line.startswith("image ")] == [
        "image 48x64 -> 48x64", "image 48x64 -> 100x30", "image 17x9 -> 33x70", "image 256x256 -> 1x5"]
    assert kernels_are_said(lines)


def test_rotate_and_scale(tmp_path):
    lines = output_of("04_rotate_and_scale.py", tmp_path)
    for exporter in ("dynamo", "TorchScript"):
        assert f'{exporter}: CustomRotScale(rotations=3, scale_factor=0.5, dims="height,width")' in lines
    assert sum("carries the function CustomRotScale" in line for line in lines) == 2
    assert sum(line == "functions: 5 images, at most 0.0e+00 from PyTorch" for line in lines) == 2
    assert kernels_are_said(lines)


def test_compare(tmp_path):
    lines = output_of("02_compare.py", tmp_path, "0")
    assert "Its values agree: at most " in lines[0]
    assert lines[1].startswith("ORT unfused ") and lines[1].endswith("the reference")
    assert any(line.startswith("ORT fused, functions ") and "largest error" in line for line in lines)
    assert (tmp_path / "compare.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_compare_sizes(tmp_path):
    lines = output_of("05_compare_sizes.py", "8,12", "0", cwd=tmp_path)
    assert [line.split()[0] for line in lines if "functions" in line] == ["8", "12"]


def output_of(example, *arguments, cwd=None):
    pytest.importorskip("torch")
    return subprocess.run([sys.executable, EXAMPLES / example, *arguments], capture_output=True, text=True,
                          cwd=cwd or arguments[0], check=True).stdout.splitlines()


def kernels_are_said(lines):
    """Whether they ran where there are any, and else are said to be missing."""
    return any("kernels" in line and ("by" in line or "from PyTorch" in line or line.startswith("no kernels"))
               for line in lines)
