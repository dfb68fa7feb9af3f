"""`--compare`, `--compare-only` and what goes with them on the command line."""

from __future__ import annotations

import json
import os

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from small_models import HEIGHT, WIDTH, feeds, plain, stn

from rewriter import cli
from rewriter.comparing import comparison

QUICK = ("--seconds", "0", "--threads", "1")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with stn.onnx, off.onnx (other values), plain.onnx and theta.npy; only ONNX Runtime is there."""
    monkeypatch.chdir(tmp_path)
    original = comparison.plan
    monkeypatch.setattr(comparison, "plan", lambda *args, **keywords: [
        item for item in original(*args, **keywords) if not item.variant.key.startswith("openvino")])
    onnx.save(stn(), "stn.onnx")
    onnx.save(plain(), "plain.onnx")
    off = stn()
    base = next(tensor for tensor in off.graph.initializer if tensor.name == "base")
    base.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(base) * np.float32(1.1), "base"))
    onnx.save(off, "off.onnx")
    np.save("theta.npy", feeds()["theta"])
    return tmp_path


def ended(*arguments) -> int:
    try:
        return cli.main(arguments)
    except SystemExit as end:
        return end.code


def test_compare_in_place(files, capsys):
    arguments = ("--compare", *QUICK, "--input", "theta=theta.npy", "--html", "page.html", "--json", "report.json")
    assert ended("stn.onnx", "stn.onnx", *arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("stn.onnx -> stn.onnx\n")
    for part in ("Fused, the model", "ORT unfused", "ORT fused, functions", "tolerance y: "):
        assert part in out
    assert max(map(len, out.splitlines())) <= 100
    assert "AffineGridSample" in [node.op_type for node in onnx.load("stn.onnx").graph.node]
    report = json.loads((files / "report.json").read_text())
    assert report["compare"]["agrees"] is True and report["fused"]
    assert report["compare"]["unfused"]["nodes"] == 4  # of what the file was
    assert (files / "page.html").read_text().startswith("<!doctype html>")


def test_compare_only_writes_nothing(files, capsys):
    assert ended("stn.onnx", "fused.onnx", "--quiet") == 0
    before = {path: path.read_bytes() for path in files.iterdir()}
    assert ended("stn.onnx", "fused.onnx", "--compare-only", *QUICK, "--json", "-") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["compare"]["agrees"] is True
    assert "Fused, the model" in err
    assert {path: path.read_bytes() for path in files.iterdir()} == before


def test_a_mismatch_has_its_own_code(files, capsys):
    assert ended("stn.onnx", "off.onnx", "--compare-only", *QUICK, "--json", "r.json") == 14
    out, err = capsys.readouterr()
    assert "MISMATCH" in out
    assert err.startswith("error: ORT fused, functions: output 'y' is off by ") and err.count("\n") == 1
    assert json.loads((files / "r.json").read_text())["compare"]["agrees"] is False
    assert ended("stn.onnx", "off.onnx", "--compare-only", *QUICK, "--quiet") == 14


FAILURES = [
    (["stn.onnx", "--compare-only"], 2, "needs two files"),
    (["stn.onnx", "off.onnx", "--compare-only", "--dry-run"], 2, "--dry-run has no meaning"),
    (["stn.onnx", "off.onnx", "--compare-only", "--compare"], 2, "--compare has no meaning"),
    (["stn.onnx", "out.onnx", "--html", "p.html"], 2, "--html is for --compare"),
    (["stn.onnx", "out.onnx", "--sweep", "H=1..2"], 2, "--sweep is for --compare"),
    (["stn.onnx", "out.onnx", "--input", "x=2"], 2, "--input is for --time, --compare"),
    (["stn.onnx", "out.onnx", "--compare", "--input", "x"], 2, "neither NAME=file.npy nor"),
    (["stn.onnx", "out.onnx", "--compare", "--input", "x=none.npy"], 2, "none.npy: no such file"),
    (["stn.onnx", "out.onnx", "--compare", "--input", "x=stn.onnx"], 2, "not an array"),
    (["stn.onnx", "out.onnx", "--compare", "--input", "z=3"], 2, "no input 'z'; there are x, theta"),
    (["stn.onnx", "out.onnx", "--compare", "--input", "theta=1x2x4"], 2, "1x2x4 does not fit"),
    (["stn.onnx", "out.onnx", "--compare", "--dim", "H=8"], 2, "open dim 'H'; all are fixed"),
    (["stn.onnx", "out.onnx", "--compare", "--sweep", "H=8..4"], 2, "runs backwards"),
    (["stn.onnx", "out.onnx", "--compare", "--sweep", "H=4..8"], 2, "open dim 'H'; all are fixed"),
    (["stn.onnx", "out.onnx", "--compare", "--seconds", "x"], 2, "no number of seconds"),
    (["stn.onnx", "out.onnx", "--compare", "--html", "out.onnx"], 2, "--html: out.onnx would overwrite out.onnx"),
    (["stn.onnx", "out.onnx", "--compare", "--html", "r", "--json", "r"], 2, "--html: r would overwrite r"),
    (["stn.onnx", "out.onnx", "--compare", "--html", "nowhere/p.html"], 8, "nowhere"),
    (["stn.onnx", "off.onnx", "--compare-only", "--html", "off.onnx"], 2, "would overwrite off.onnx"),
    (["stn.onnx", "none.onnx", "--compare-only"], 3, "none.onnx: no such file"),
    (["stn.onnx", "plain.onnx", "--compare-only"], 15, "'theta'"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), FAILURES)
def test_bad_input(files, capsys, arguments, code, message):
    before = sorted(os.listdir())
    assert ended(*arguments) == code
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err
    assert sorted(os.listdir()) == before


def test_time_takes_inputs_too(files, capsys):
    assert ended("stn.onnx", "--dry-run", "--time", "--threads", "1", "--input", "theta=theta.npy") == 0
    assert f"inputs: x float[1, 3, {HEIGHT}, {WIDTH}], theta float[1, 2, 3]" in capsys.readouterr().out


def test_what_no_runtime_here_can_run_is_not_timed(files, capsys):
    assert ended("stn.onnx", "out.onnx", "--compare", "--target", "tensorrt-plugin") == 2
    assert "which no runtime here can run" in capsys.readouterr().err
    assert not (files / "out.onnx").exists()
