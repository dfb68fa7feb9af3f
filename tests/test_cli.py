"""The command line: what it prints, what it writes, and with which code it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from small_models import HEIGHT, WIDTH, externalize, feeds, plain, stn

import rewriter
from rewriter import cli, timing
from rewriter.errors import KEPT_GOING


@pytest.fixture
def files(tmp_path, monkeypatch):
    """An empty folder to work in, with stn.onnx and plain.onnx."""
    monkeypatch.chdir(tmp_path)
    onnx.save(stn(), "stn.onnx")
    onnx.save(plain(), "plain.onnx")
    return tmp_path


def command(*arguments, env=None) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "rewriter", *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, **(env or {})})


def ended(*arguments) -> int:
    """The exit code of a command line called in this process."""
    try:
        return cli.main(arguments)
    except SystemExit as end:
        return end.code


def contents(folder) -> dict[str, bytes | None]:
    """What lies below a folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_fuses_and_says_what(files, capsys, run):
    assert ended("stn.onnx", "out.onnx") == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "stn.onnx -> out.onnx"
    assert [line.split()[:3] for line in lines if line.startswith("AffineGridSample")] == [
        ["AffineGridSample", "1", "sampler"]]
    sizes = f"size {os.path.getsize('stn.onnx'):,} -> {os.path.getsize('out.onnx'):,} bytes"
    assert any(line.startswith("nodes 4 -> ") and line.endswith(sizes) for line in lines)
    assert np.abs(run(onnx.load("out.onnx"), feeds())["y"] - run(stn(), feeds())["y"]).max() < 1e-5
    assert sorted(os.listdir()) == ["out.onnx", "plain.onnx", "stn.onnx"]


def test_nothing_to_fuse_is_success(files, capsys):
    assert ended("plain.onnx", "out.onnx") == 0
    assert "nothing to fuse; the output is the input, byte for byte" in capsys.readouterr().out
    assert (files / "out.onnx").read_bytes() == (files / "plain.onnx").read_bytes()


def test_the_same_file_and_again(files):
    assert ended("stn.onnx", "stn.onnx", "--quiet") == 0
    once = (files / "stn.onnx").read_bytes()
    assert "AffineGridSample" in [node.op_type for node in onnx.load("stn.onnx").graph.node]
    assert ended("stn.onnx", "stn.onnx", "--quiet") == 0
    assert (files / "stn.onnx").read_bytes() == once


def test_as_a_module(files):
    done = command("stn.onnx", "out.onnx")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("stn.onnx -> out.onnx\n")
    assert command("none.onnx", "out.onnx").returncode == 3
    assert command("--version").stdout == f"onnx-warpfuse {rewriter.__version__}\n"


def test_dry_run_writes_nothing(files, capsys):
    for arguments in (["stn.onnx", "--dry-run"], ["stn.onnx", "out.onnx", "--dry-run"]):
        assert ended(*arguments) == 0
        out = capsys.readouterr().out
        assert "dry run" in out
        assert "AffineGridSample" in out
    assert sorted(os.listdir()) == ["plain.onnx", "stn.onnx"]


def test_quiet_prints_nothing(files, capsys):
    assert ended("stn.onnx", "out.onnx", "--quiet", "--explain") == 0
    assert capsys.readouterr() == ("", "")
    assert ended("none.onnx", "out.onnx", "--quiet") == 3
    assert capsys.readouterr().err.startswith("error: ")


def near_miss() -> onnx.ModelProto:
    """stn with a base grid of which one element is off."""
    model = stn()
    base = model.graph.initializer[0]
    array = onnx.numpy_helper.to_array(base).copy()
    array[0, 5, 0] += 0.01
    base.raw_data = array.tobytes()
    return model


def test_explain(files, capsys):
    onnx.save(near_miss(), "near.onnx")
    assert ended("near.onnx", "out.onnx") == 0
    out = capsys.readouterr().out
    assert "--explain says why" in out
    assert ended("near.onnx", "--dry-run", "--explain", "--json", "report.json") == 0
    out = capsys.readouterr().out
    missed = json.loads((files / "report.json").read_text())["missed"]
    assert missed
    told = "".join(out.split())
    for miss in missed:
        for part in (miss["pattern"], miss["op_type"], miss["reason"], miss["tensor"]):
            assert "".join(part.split()) in told


def test_json(files, capsys):
    assert ended("stn.onnx", "out.onnx", "--json", "report.json") == 0
    report = json.loads((files / "report.json").read_text())
    assert report["rewriter"] == rewriter.__version__
    assert (report["input"], report["output"], report["changed"]) == ("stn.onnx", "out.onnx", True)
    assert report["bytes_after"] == os.path.getsize("out.onnx")
    assert {"pattern", "operator", "node", "tensor", "scope", "nodes", "note"} == report["fused"][0].keys()
    capsys.readouterr()
    assert ended("stn.onnx", "out.onnx", "--json", "-") == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == report
    assert err.startswith("stn.onnx -> out.onnx")


def test_patterns(files, capsys):
    assert ended("stn.onnx", "out.onnx", "--patterns", "affine_grid") == 0
    assert {"AffineGrid", "GridSample"} <= {node.op_type for node in onnx.load("out.onnx").graph.node}
    assert ended("stn.onnx", "out.onnx", "--patterns", "affine_grid_sample") == 0  # brings affine_grid along
    assert "AffineGridSample" in [node.op_type for node in onnx.load("out.onnx").graph.node]
    assert ended("stn.onnx", "out.onnx", "--patterns", " affine_grid, rot90 ,") == 0
    assert "AffineGrid" in [node.op_type for node in onnx.load("out.onnx").graph.node]
    capsys.readouterr()
    assert ended("stn.onnx", "other.onnx", "--patterns", "affine_grid,nope") == 2
    err = capsys.readouterr().err
    assert "'nope'" in err
    assert "affine_grid_sample" in err
    assert not os.path.exists("other.onnx")


def _checker_refuses(files):
    onnx.save(plain(("Relu", "Frobnicate")), "bad.onnx")
    return ["bad.onnx", "out.onnx"]


def _data_is_missing(files):
    onnx.save(externalize(stn(), "base", location="none.bin"), "bad.onnx")
    return ["bad.onnx", "out.onnx"]


def _not_onnx(files):
    (files / "bad.onnx").write_bytes(b"no model at all")
    return ["bad.onnx", "out.onnx"]


def _report_is_data(files):
    onnx.save(externalize(stn(), "base", location="base.bin"), "bad.onnx")
    base = next(t for t in stn().graph.initializer if t.name == "base").raw_data
    (files / "base.bin").write_bytes(base)
    return ["bad.onnx", "out.onnx", "--json", "./base.bin"]


def _report_is_data_beside_the_output(files):
    arguments = _report_is_data(files)
    (files / "to").mkdir()
    return [arguments[0], "to/out.onnx", "--json", "to/base.bin"]


def _report_is_linked_to_the_input(files):
    (files / "link").symlink_to("stn.onnx")
    return ["stn.onnx", "out.onnx", "--json", "link"]


FAILURES = [
    (lambda files: ["stn.onnx"], 2, "output"),
    (lambda files: [], 2, "input"),
    (lambda files: ["stn.onnx", "out.onnx", "--frob"], 2, "--frob"),
    (lambda files: ["stn.onnx", "out.onnx", "--dim", "H"], 2, "NAME=SIZE"),
    (lambda files: ["stn.onnx", "out.onnx", "--dim", "H=0"], 2, "positive"),
    (lambda files: ["stn.onnx", "out.onnx", "--dim", "H=8"], 2, "for --time, --compare"),
    (lambda files: ["stn.onnx", "out.onnx", "--time", "--dim", "H=8"], 2, "open dim 'H'; all are fixed"),
    (lambda files: ["stn.onnx", "out.onnx", "--patterns", ","], 2, "no name"),
    (lambda files: ["stn.onnx", "out.onnx", "--patterns", ""], 2, "no name"),
    (lambda files: ["stn.onnx", "out.onnx", "--json", "out.onnx"], 2, "would overwrite out.onnx"),
    (lambda files: ["stn.onnx", "out.onnx", "--json", "./stn.onnx"], 2, "would overwrite stn.onnx"),
    (lambda files: ["stn.onnx", "--dry-run", "--json", "stn.onnx"], 2, "would overwrite stn.onnx"),
    (_report_is_linked_to_the_input, 2, "would overwrite stn.onnx"),
    (_report_is_data, 2, "base.bin"),
    (_report_is_data_beside_the_output, 2, "to/base.bin"),
    (lambda files: ["none.onnx", "out.onnx"], 3, "none.onnx: no such file"),
    (lambda files: [".", "out.onnx"], 4, ".: a directory"),
    (_not_onnx, 5, "bad.onnx: not an ONNX model"),
    (_checker_refuses, 6, "Frobnicate"),
    (_data_is_missing, 7, "tensor 'base'"),
    (lambda files: ["stn.onnx", "nowhere/out.onnx"], 8, "nowhere"),
    (lambda files: ["stn.onnx", "."], 8, ".: a directory"),
    (lambda files: ["stn.onnx", os.devnull], 8, "not a regular file"),
    (lambda files: ["stn.onnx", "out.onnx", "--dry-run", "--json", "nowhere/r.json"], 8, "nowhere"),
    (lambda files: ["stn.onnx", "out.onnx", "--json", "nowhere/r.json"], 8, "nowhere"),
    (lambda files: ["stn.onnx", "out.onnx", "--json", "."], 8, ".: a directory"),
    (lambda files: ["stn.onnx", "out.onnx", "--json", os.devnull], 8, "not a regular file"),
]


@pytest.mark.parametrize(("arrange", "code", "message"), FAILURES)
def test_bad_input(files, capsys, arrange, code, message):
    arguments = arrange(files)
    before = contents(files)
    assert ended(*arguments) == code
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert contents(files) == before


FAULTY = """
class Faulty:
    name, anchors, operators, needs = "faulty", frozenset({"Sin"}), (), ()
    def match(self, node, scope):
        raise LookupError("the moon is full\\n and so am I")
ALL, OPT_IN, FOR_KERNELS = (Faulty(),), (), ()
"""


@pytest.fixture
def faulty(files):
    """The environment in which the default pattern is one with a bug."""
    (files / "site" / "patterns").mkdir(parents=True)
    (files / "site" / "patterns" / "__init__.py").write_text(FAULTY)
    home = os.path.dirname(os.path.dirname(rewriter.__file__))
    return {"PYTHONPATH": os.pathsep.join([str(files / "site"), home]), "PYTHONSAFEPATH": "1"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="PYTHONSAFEPATH")
def test_internal_error(files, faulty):
    done = command("plain.onnx", "out.onnx", env=faulty)
    assert (done.returncode, done.stdout) == (10, "")
    assert done.stderr.count("\n") == 1
    for part in ("internal error", "faulty", "Sin_y", "the moon is full\\n and so am I", "please report it"):
        assert part in done.stderr
    assert not os.path.exists("out.onnx")
    assert "Traceback" in command("plain.onnx", "out.onnx", "--debug", env=faulty).stderr
    assert command("plain.onnx", "--dry-run", "--keep-going", env=faulty).returncode == 10


@pytest.mark.skipif(sys.version_info < (3, 11), reason="PYTHONSAFEPATH")
def test_keep_going(files, faulty):
    done = command("plain.onnx", "out.onnx", "--keep-going", env=faulty)
    assert (done.returncode, done.stdout) == (KEPT_GOING, "")
    assert "internal error" in done.stderr
    assert (files / "out.onnx").read_bytes() == (files / "plain.onnx").read_bytes()


SLOW = """
import os, signal, sys
from rewriter import cli, saving
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
signal.signal(signal.SIGTERM, signal.SIG_DFL)
def replace(temporary, target):  # at the last moment
    assert os.path.exists(temporary)
    os.kill(os.getpid(), signal.SIGNAL)
saving.os.replace = replace
code = cli.main(["stn.onnx", "stn.onnx"])
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
sys.exit(code)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_leaves_everything_as_it_was(files, name, code):
    before = contents(files)
    done = subprocess.run([sys.executable, "-c", SLOW.replace("SIGNAL", name)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == code, done.stderr
    assert done.stderr.endswith("; no file was left half written\n")
    assert contents(files) == before


@pytest.mark.skipif(os.name != "posix", reason="pipes")
def test_a_reader_that_has_left_is_no_bug(files):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody:
        done = subprocess.run([sys.executable, "-m", "rewriter", "stn.onnx", "out.onnx"], stdout=nobody,
                              stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (141, b"")
    assert rewriter.fuse("out.onnx", dry_run=True).fused == []


def test_help_is_for_newcomers(capsys):
    assert ended("--help") == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert "exit codes:" in text
    for code in range(2, 12):
        assert f"\n  {code:2}  " in text
    assert max(map(len, text.splitlines())) <= 100


def test_names_from_a_model_are_printed_escaped_and_fit(files, capsys):
    evil = "a\x1b[31mred\x07\r\nnew\u202ereversed" + "/very/long/name" * 20
    model = stn()
    for node in model.graph.node:
        node.name = evil + node.name
    onnx.save(model, "evil.onnx")
    onnx.save(near_miss(), "near.onnx")
    for arguments in (["evil.onnx", "out.onnx", "--explain"], ["near.onnx", "out.onnx", "--explain"]):
        assert ended(*arguments) == 0
        out = capsys.readouterr().out
        assert all(c.isprintable() for c in out.replace("\n", ""))
        assert max(map(len, out.splitlines())) <= 100
    assert ended("evil.onnx", "out.onnx") == 0
    assert "a\\x1b[31mred\\x07\\r\\nnew\\u202ereversed" in "".join(capsys.readouterr().out.split())
    assert ended("no\x1b[31mfile.onnx", "out.onnx") == 3
    assert "no\\x1b[31mfile.onnx" in capsys.readouterr().err
    assert ended("--\x1b[31m", "a", "b") == 2
    assert "\x1b" not in capsys.readouterr().err


def test_narrow_encoding(files):
    os.rename("stn.onnx", "bär.onnx")
    done = command("bär.onnx", "out.onnx", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.startswith("b\\xe4r.onnx -> out.onnx\n")


def test_torch_is_not_imported(files):
    program = ("import runpy, sys\nsys.argv = ['rewriter', 'stn.onnx', 'out.onnx']\n"
               "try: runpy.run_module('rewriter', run_name='__main__')\n"
               "except SystemExit as end: print(end.code, 'torch' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False"


# --- --time

def test_time(files, capsys):
    assert ended("stn.onnx", "stn.onnx", "--time", "--threads", "1", "--json", "report.json") == 0
    out = capsys.readouterr().out
    time = json.loads((files / "report.json").read_text())["time"]
    assert time["low"] <= time["ratio"] <= time["high"]
    assert time["threads"] == 1
    assert time["inputs"] == [["x", "float", [1, 3, HEIGHT, WIDTH]], ["theta", "float", [1, 2, 3]]]
    assert f"fused / unfused {time['ratio']:.3f}" in out


def dynamic(kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    shape = ["N", 3, "H", None]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", kind, shape)],
                              [helper.make_tensor_value_info("y", kind, shape)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_open_dims_are_set_or_assumed_and_told(files, capsys):
    onnx.save(dynamic(), "d.onnx")
    assert ended("d.onnx", "--dry-run", "--time", "--dim", "H=8", "--dim", "x:3=5") == 0
    out = capsys.readouterr().out
    assert "x float[1, 3, 8, 5]" in out
    assert "--dim N=1" in out
    assert "--dim H" not in out
    for name in ("W", "x:1", "x:2"):
        assert ended("d.onnx", "--dry-run", "--time", "--dim", f"{name}=8") == 2
        assert f"no input has an open dim '{name}'; there are N, H, x:3" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE, TensorProto.INT64,
                                  TensorProto.UINT8, TensorProto.INT8, TensorProto.BOOL])
def test_time_takes_inputs_of_any_type(kind):
    data = dynamic(kind).SerializeToString()
    result = timing.measure(data, data, dims={"H": 2, "x:3": 2}, threads=1, seconds=0, least=5)
    assert result.inputs[0][2] == (1, 3, 2, 2)
    assert result.assumed == {"N": 1}
    assert result.rounds == 5


def test_time_with_external_data(files, capsys):
    model = stn(extra_node=True)
    bias = next(t for t in model.graph.initializer if t.name == "bias").raw_data
    (files / "bias.bin").write_bytes(bias)
    onnx.save(externalize(model, "bias", location="bias.bin"), "m.onnx")
    assert ended("m.onnx", "--dry-run", "--time") == 0
    assert "fused / unfused" in capsys.readouterr().out


def test_time_that_cannot_run(files, capsys):
    onnx.save(dynamic(TensorProto.COMPLEX64), "c.onnx")
    before = sorted(os.listdir())
    assert ended("c.onnx", "out.onnx", "--time") == 9
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(os.listdir()) == before
