"""Many models: what is done, what fails, and what is skipped the second time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
from small_models import externalize, feeds, plain, stn

import rewriter
from rewriter import cli, many
from rewriter.errors import MissingFileError, UsageError
from rewriter.runtimes import targets


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A folder with models/a.onnx and models/deep/b.onnx (which fuse), plain.onnx and bad.onnx."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "deep").mkdir(parents=True)
    onnx.save(stn(), "models/a.onnx")
    onnx.save(stn(extra_node=True), "models/deep/b.onnx")
    onnx.save(plain(), "models/plain.onnx")
    (tmp_path / "models" / "bad.onnx").write_bytes(b"no model")
    return tmp_path


def ended(*arguments) -> int:
    try:
        return cli.main(arguments)
    except SystemExit as end:
        return end.code


def lines(path="r.jsonl") -> dict[str, dict]:
    with open(path) as file:
        return {os.path.relpath(line["output"], "fused"): line for line in map(json.loads, file)}


def test_one_bad_model_does_not_stop_the_rest(models, capsys):
    assert ended("models", "--out-dir", "fused", "--jobs", "2", "--json", "r.jsonl") == 16
    out, err = capsys.readouterr()
    assert err == "error: 1 of 4 models failed; what is done is skipped next time\n"
    assert "failed: bad.onnx: models/bad.onnx: not an ONNX model" in out
    assert out.splitlines()[-1] == "1 failed, 2 fused, 1 unchanged"
    assert max(len(line) for line in out.splitlines() if not line.startswith("failed")) <= 100
    found = lines()
    assert {name: line["status"] for name, line in found.items()} == {
        "a.onnx": "fused", "bad.onnx": "failed", "deep/b.onnx": "fused", "plain.onnx": "unchanged"}
    assert found["bad.onnx"]["exit_code"] == 5 and found["a.onnx"]["exit_code"] == 0
    assert found["a.onnx"]["nodes_before"] == 4
    assert "AffineGridSample" in [node.op_type for node in onnx.load("fused/deep/b.onnx").graph.node]
    assert (models / "fused" / "plain.onnx").read_bytes() == (models / "models" / "plain.onnx").read_bytes()
    assert sorted(os.listdir("fused")) == [".warpfuse.jsonl", "a.onnx", "deep", "plain.onnx"]


def test_what_is_done_is_skipped(models, capsys):
    def run(*more):
        code = ended("models", "--out-dir", "fused", "--json", "r.jsonl", "--quiet", *more)
        return code, {name: line["status"] for name, line in lines().items()}

    assert run()[0] == 16
    os.utime("models/a.onnx")  # times do not count
    statuses = {"a.onnx": "skipped", "bad.onnx": "failed", "deep/b.onnx": "skipped", "plain.onnx": "skipped"}
    assert run() == (16, statuses)
    assert lines()["a.onnx"]["fused"]  # the report of the first time
    os.unlink("models/bad.onnx")
    onnx.save(plain(), "models/a.onnx")  # another input
    os.unlink("fused/deep/b.onnx")  # a lost output
    with open("fused/plain.onnx", "ab") as file:  # a damaged one
        file.write(b"x")
    assert run() == (0, {"a.onnx": "unchanged", "deep/b.onnx": "fused", "plain.onnx": "unchanged"})
    assert run() == (0, dict.fromkeys(["a.onnx", "deep/b.onnx", "plain.onnx"], "skipped"))
    assert run("--patterns", "rot90")[1]["deep/b.onnx"] == "unchanged"  # something else was asked for
    with open("fused/.warpfuse.jsonl", "a") as file:
        file.write('{"name": "a.on')  # cut short
    assert run("--patterns", "rot90") == (0, dict.fromkeys(["a.onnx", "deep/b.onnx", "plain.onnx"], "skipped"))


def test_external_data_is_part_of_the_input(models):
    model = externalize(stn(extra_node=True), "bias", location="bias.bin")
    bias = next(tensor for tensor in stn(extra_node=True).graph.initializer if tensor.name == "bias").raw_data
    (models / "models" / "bias.bin").write_bytes(bias)
    onnx.save(model, "models/e.onnx")
    arguments = ("models/e.onnx", "--out-dir", "fused", "--quiet", "--json", "r.jsonl")
    assert ended(*arguments) == 0
    assert (models / "fused" / "bias.bin").read_bytes() == bias
    assert ended(*arguments) == 0 and lines()["e.onnx"]["status"] == "skipped"
    (models / "models" / "bias.bin").write_bytes(bytes(len(bias)))
    assert ended(*arguments) == 17  # the copy beside the output may be another model's
    assert "--overwrite-data" in lines()["e.onnx"]["error"]
    assert ended(*arguments, "--overwrite-data") == 0
    assert (models / "fused" / "bias.bin").read_bytes() == bytes(len(bias))


def test_all_fail(models, capsys):
    assert ended("models/bad.onnx", "--out-dir", "fused") == 17
    assert capsys.readouterr().err == "error: all models failed (1)\n"


def test_a_child_that_dies_is_replaced(models, monkeypatch):
    monkeypatch.setattr(many, "CHILD", "test_many:Mortal")
    monkeypatch.syspath_prepend(os.path.dirname(__file__))
    todo = many.tasks(["models/a.onnx", "models/plain.onnx", "models/deep/b.onnx"], "fused")
    seen = []
    outcomes = many.fuse_many(todo, "fused", done=lambda outcome: seen.append(outcome.name))
    assert [outcome.status for outcome in outcomes] == ["failed", "unchanged", "fused"]
    assert outcomes[0].exit_code == 10 and "died" in outcomes[0].error
    assert sorted(seen) == ["a.onnx", "b.onnx", "plain.onnx"]


class Mortal(many.Fuser):
    """Does not survive a.onnx."""

    def fuse(self, source, *arguments, **options):
        if source.endswith("a.onnx"):
            os.abort()
        return super().fuse(source, *arguments, **options)


FAILURES = [
    (["models", "--out-dir", "models"], 2, "is an input; name another folder"),
    (["models/a.onnx", "none.onnx", "--out-dir", "fused"], 3, "none.onnx: no such file"),
    (["models/a.onnx", "other/a.onnx", "--out-dir", "fused"], 2, "would both become"),
    (["other/empty", "--out-dir", "fused"], 2, "no .onnx file"),
    (["models/a.onnx", "b", "c"], 2, "unrecognized arguments: c (several models need --out-dir)"),
    (["models/a.onnx", "b", "--jobs", "2"], 2, "--jobs is for --out-dir"),
    (["models", "--out-dir", "fused", "--compare"], 2, "--compare is for one model"),
    (["models", "--out-dir", "fused", "--dry-run"], 2, "--dry-run is for one model"),
    (["models", "--out-dir", "fused", "--json", "models/a.onnx"], 2, "would overwrite a model"),
    (["models", "--out-dir", "models/a.onnx"], 8, "models/a.onnx: cannot be used"),
    (["models", "--out-dir", "fused", "--patterns", "nope"], 2, "'nope'"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), FAILURES)
def test_bad_input(models, capsys, arguments, code, message):
    (models / "other" / "empty").mkdir(parents=True)
    onnx.save(plain(), "other/a.onnx")
    assert ended(*arguments) == code
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err
    assert not os.path.exists("fused")


def test_tasks(models):
    os.makedirs("models/fused")
    onnx.save(plain(), "models/fused/old.onnx")  # an earlier output inside the input
    names = [task.name for task in many.tasks(["models"], "models/fused")]
    assert names == ["a.onnx", "bad.onnx", "deep/b.onnx", "plain.onnx"]
    assert len(many.tasks(["models/a.onnx", "models/a.onnx"], "fused")) == 1
    with pytest.raises(MissingFileError):
        many.tasks(["none"], "fused")
    with pytest.raises(UsageError):
        many.tasks([], "fused")


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_interrupted_and_continued(models):
    for index in range(40):
        onnx.save(stn(name=f"m{index}"), f"models/m{index}.onnx")
    os.unlink("models/bad.onnx")
    command = [sys.executable, "-m", "rewriter", "models", "--out-dir", "fused", "--jobs", "1", "--quiet"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while time.monotonic() < until and not os.path.exists("fused/.warpfuse.jsonl"):
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (143, 0)  # 0: it was quicker
    with open("fused/.warpfuse.jsonl") as file:
        done = sum(1 for _ in file)
    assert ended("models", "--out-dir", "fused", "--quiet", "--json", "r.jsonl") == 0
    statuses = [line["status"] for line in lines().values()]
    assert statuses.count("skipped") == done and len(statuses) == 43
    assert not [name for name in os.listdir("fused") if name.endswith(".tmp")]


def test_a_link_to_nowhere_fails_as_a_missing_file_does(models):
    os.symlink("nowhere.onnx", "models/dangling.onnx")
    assert ended("models", "--out-dir", "fused", "--json", "r.jsonl") == 16
    assert lines()["dangling.onnx"]["exit_code"] == 3


def test_an_output_of_an_earlier_input_is_named(models, capsys):
    assert ended("models/a.onnx", "models/plain.onnx", "--out-dir", "fused") == 0
    (models / "models" / "a.onnx").write_bytes(b"no model any more")
    assert ended("models/a.onnx", "models/plain.onnx", "--out-dir", "fused", "--json", "r.jsonl") == 16
    assert lines()["a.onnx"]["error"].endswith("fused/a.onnx is of an earlier run")


VOLUME = """<ir_version: 8, opset_import: ["" : 20, "custom.ops" : 1]>
g (float[1,1,2,3,4] x, float[1,3,4] theta) => (float[1,1,a,b,c] y) <int64[5] size = {1, 1, 2, 3, 4}> {
    y = custom.ops.AffineGridSample(x, theta, size) }"""


@pytest.mark.parametrize("target", targets.NAMES)
def test_targets(models, run, capsys, target):
    """A folder holds what each model alone becomes; the second run skips it, one for another target does not."""
    os.unlink("models/bad.onnx")

    def start(target):
        assert ended("models", "--out-dir", "fused", "--target", target, "--json", "r.jsonl") == 0
        return {name: line["status"] for name, line in lines().items()}

    assert start(target) == {"a.onnx": "fused", "deep/b.onnx": "fused", "plain.onnx": "unchanged"}
    said = " ".join(capsys.readouterr().out.split())
    assert (f"AffineGridSample 1, written for {target}: 1" in said) == (target not in ("portable", "kernels"))
    assert ("2 models need: plugins registered before parsing" in said) == (target == "tensorrt-plugin")
    for name in ("a.onnx", "deep/b.onnx", "plain.onnx"):
        alone = rewriter.fuse(f"models/{name}", "alone.onnx", target=target)
        with open("alone.onnx", "rb") as one, open(f"fused/{name}", "rb") as other:
            assert one.read() == other.read()
        assert alone.to_dict().items() <= lines()[name].items() and alone.target == target
    if target != "tensorrt-plugin":
        got, wanted = (run(onnx.load(path), feeds())["y"] for path in ("fused/deep/b.onnx", "models/deep/b.onnx"))
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)
    first = lines()
    assert start(target) == dict.fromkeys(first, "skipped")
    assert {name: line["needs"] for name, line in lines().items()} == {n: line["needs"] for n, line in first.items()}
    other = "stock" if target != "stock" else "openvino"
    assert start(other) == {"a.onnx": "fused", "deep/b.onnx": "fused", "plain.onnx": "unchanged"}


def test_what_a_target_cannot_be_given_does_not_stop_the_rest(models):
    os.unlink("models/bad.onnx")
    onnx.save(onnx.parser.parse_model(VOLUME), "models/volume.onnx")
    arguments = ("models", "--out-dir", "fused", "--json", "r.jsonl", "--quiet", "--target")
    assert ended(*arguments, "openvino") == 16
    failed = lines()["volume.onnx"]
    assert failed["exit_code"] == 13 and "OpenVINO's GridSample takes images only" in failed["error"]
    assert not os.path.exists("fused/volume.onnx") and lines()["deep/b.onnx"]["status"] == "fused"
    assert ended(*arguments, "stock") == 0
    assert ended(*arguments, "openvino") == 16  # the folder says of what run the file there is
    assert lines()["volume.onnx"]["error"].endswith("fused/volume.onnx is of an earlier run")


def test_there_must_be_such_a_target(models):
    with pytest.raises(UsageError, match="no target is named 'coreml'"):
        many.fuse_many(many.tasks(["models"], "fused"), "fused", target="coreml")
    assert not os.path.exists("fused")
