"""The examples run and do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_spatial_transformer(tmp_path):
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
