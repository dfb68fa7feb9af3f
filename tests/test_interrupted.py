"""Runs that are killed, and runs side by side: the old file or the new one, never a mixture.

`interrupted.py` has more of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import interrupted
import onnx
import pytest
from interrupted import SCENARIOS, TEMPORARY, WRONG, count, fork, wait
from small_models import stn

import rewriter
from rewriter import cli

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="interrupts processes that it forks")
KILLS = 12


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_at_any_moment(number):
    for name, counts in count(KILLS, number, seed=7, many_every=KILLS).items():
        assert {what: counts[what] for what in WRONG} == dict.fromkeys(WRONG, 0), name
        assert sum(counts[state] for state in (
            "old", "new", "between", "no model, its data being overwritten")) >= 1


def test_a_judge_that_sees_a_mixture(monkeypatch):
    """Had the data been written into their place, some kill would leave half of them."""
    scenario = SCENARIOS["page"]

    def into_its_place() -> int:
        with open("page.html", "wb") as page:
            for _ in range(interrupted.SIZE // 16):
                page.write(b"new")
        return 0

    monkeypatch.setattr(scenario, "run", into_its_place)
    trial = interrupted.Trial(scenario, interrupted.random.Random(1))
    for _ in range(10):
        trial.once(signal.SIGKILL, aimed=False)
    assert trial.counts["mixture"] >= 1


def test_a_reader_sees_one_model_or_the_other(tmp_path, monkeypatch):
    """Of a file that is fused and restored time and again while it is read."""
    monkeypatch.chdir(tmp_path)
    unfused, fused = stn().SerializeToString(), rewriter.fuse(stn())[0].SerializeToString()
    (tmp_path / "unfused.onnx").write_bytes(unfused)
    (tmp_path / "m.onnx").write_bytes(unfused)

    def write() -> int:
        return sum(cli.main([source, "m.onnx", "--quiet", *options]) for _ in range(10) for source, *options in (
            ("unfused.onnx",), ("unfused.onnx", "--only", "CustomRotScale")))

    child, seen = fork(write), set()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        seen.add((tmp_path / "m.onnx").read_bytes())
    assert seen == {unfused, fused}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "unfused.onnx"]


@pytest.mark.parametrize("data", ["share", "copy"])
def test_runs_to_one_output(tmp_path, monkeypatch, data):
    """Of two models with data files of the same name: what remains is all of one run."""
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        interrupted.with_data(str(seed), seed)
        os.mkdir(f"alone{seed}")
        assert cli.main([f"{seed}/in.onnx", f"alone{seed}/out.onnx", "--quiet"]) == 0
    os.mkdir("together")
    models = [f"{seed}/in.onnx" for seed in (1, 2)] if data == "copy" else ["alone1/out.onnx"] * 2
    children = [subprocess.Popen([sys.executable, "-m", "rewriter", model, "together/out.onnx", "--quiet",
                                  "--overwrite-data"], stderr=subprocess.PIPE, text=True) for model in models]
    for child in children:
        assert (child.communicate(timeout=120)[1], child.returncode) == ("", 0)
    made = {str(path.relative_to("together")): path.read_bytes()
            for path in sorted(interrupted.Path("together").rglob("*")) if path.is_file()}
    alone = [{str(path.relative_to(f"alone{seed}")): path.read_bytes()
              for path in sorted(interrupted.Path(f"alone{seed}").rglob("*")) if path.is_file()} for seed in (1, 2)]
    assert made in alone


def test_what_a_killed_run_leaves_is_cleared_once_it_is_old(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(stn(), "in.onnx")
    for name, age in ((".warpfuse-0123456789abcdef.tmp", 2), (".warpfuse-fedcba9876543210.tmp", 0),
                      (".warpfuse-notes.tmp", 2)):
        (tmp_path / name).write_bytes(b"part")
        then = os.stat(name).st_mtime - age * interrupted.drafts.ABANDONED
        os.utime(name, (then, then))
    assert wait(fork(lambda: cli.main(["in.onnx", "out.onnx", "--quiet"]))) == 0
    left = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("."))
    assert left == [".warpfuse-fedcba9876543210.tmp", ".warpfuse-notes.tmp"]
    assert [bool(TEMPORARY.fullmatch(name)) for name in left] == [True, False]
