"""Files: the old one or the new one, never a part, and nothing left over."""

from __future__ import annotations

import contextlib
import os
import resource
import stat
import subprocess
import sys

import numpy as np
import onnx
import pytest
from small_models import base_grid, externalize, feeds, plain, stn

import rewriter
from rewriter import drafts, saving
from rewriter.errors import OutputError

NEW = b"new" * 100


def names(folder) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@contextlib.contextmanager
def little_room():
    """The kernel refuses to let a file grow beyond 1 MiB, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_replaces_and_leaves_nothing_beside(tmp_path):
    (tmp_path / "m").write_bytes(b"old")
    saving.save(NEW, tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == NEW
    assert names(tmp_path) == ["m"]


def test_reader_of_the_old_file_keeps_it(tmp_path):
    (tmp_path / "m").write_bytes(b"old")
    with open(tmp_path / "m", "rb") as reader:
        saving.save(NEW, tmp_path / "m")
        assert reader.read() == b"old"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_permissions_of_an_existing_file_stay(tmp_path, mode):
    (tmp_path / "m").write_bytes(b"old")
    (tmp_path / "m").chmod(mode)
    saving.save(NEW, tmp_path / "m")
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == mode


def test_permissions_of_a_new_file_follow_the_umask(tmp_path):
    (tmp_path / "other").write_bytes(b"")
    saving.save(NEW, tmp_path / "m")
    assert (tmp_path / "m").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_symbolic_link_is_followed_and_stays(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "m").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real/m")
    saving.save(NEW, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "m").read_bytes() == NEW
    assert names(tmp_path) == ["link", "real", "real/m"]


def test_full_disk_leaves_the_old_file(tmp_path):
    (tmp_path / "m").write_bytes(b"old")
    with little_room(), pytest.raises(OutputError, match="cannot be written"):
        saving.save(bytes(1 << 21), tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == b"old"
    assert names(tmp_path) == ["m"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, MemoryError])
def test_interruption_leaves_the_old_file(tmp_path, interruption):
    (tmp_path / "m").write_bytes(b"old")
    with pytest.raises(interruption), drafts.draft(str(tmp_path / "m")) as draft:  # noqa: PT012 - in the middle of it
        draft.file.write(NEW)
        raise interruption
    assert (tmp_path / "m").read_bytes() == b"old"
    assert names(tmp_path) == ["m"]


def test_interruption_after_the_rename_leaves_model_and_data(tmp_path, monkeypatch):
    def interrupted(folder):
        if (tmp_path / "to" / "m").exists():
            raise KeyboardInterrupt

    (tmp_path / "to").mkdir()
    (tmp_path / "data").write_bytes(b"weights")
    monkeypatch.setattr(saving, "sync_folder", interrupted)  # the slow part that comes after it
    with pytest.raises(KeyboardInterrupt):
        saving.save(NEW, tmp_path / "to" / "m", folder=str(tmp_path), locations=["data"])
    assert names(tmp_path) == ["data", "to", "to/data", "to/m"]


def _directory(folder):
    return folder


def _no_folder(folder):
    return folder / "none" / "m"


def _device(folder):
    return os.devnull


def _fifo(folder):
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def _below_a_file(folder):
    (folder / "file").write_bytes(b"")
    return folder / "file" / "m"


@pytest.mark.parametrize("target", [_directory, _no_folder, _device, _fifo, _below_a_file])
def test_refused_outputs(tmp_path, target):
    onnx.save(plain(), tmp_path / "in.onnx")
    output = target(tmp_path)
    before = names(tmp_path)
    with pytest.raises(OutputError) as refused:
        rewriter.fuse(tmp_path / "in.onnx", output)
    assert str(output) in str(refused.value)
    assert names(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_read_only(tmp_path):
    onnx.save(plain(), tmp_path / "in.onnx")
    (tmp_path / "out.onnx").write_bytes(b"old")
    (tmp_path / "out.onnx").chmod(0o444)
    with pytest.raises(OutputError, match="write-protected"):
        rewriter.fuse(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == b"old"


def test_nothing_fused_is_byte_identical(tmp_path):
    data = plain().SerializeToString() + b"\xa2\x06\x03abc"  # and an unknown field at the end
    (tmp_path / "in.onnx").write_bytes(data)
    report = rewriter.fuse(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert not report.fused
    assert (report.bytes_before, report.bytes_after) == (len(data), len(data))
    assert (tmp_path / "out.onnx").read_bytes() == data


def test_input_may_be_the_output(tmp_path):
    onnx.save(stn(), tmp_path / "m.onnx")
    onnx.save(stn(), tmp_path / "copy.onnx")
    rewriter.fuse(tmp_path / "copy.onnx", tmp_path / "out.onnx")
    report = rewriter.fuse(tmp_path / "m.onnx", tmp_path / "m.onnx")
    assert report.count("AffineGridSample") == 1
    assert (tmp_path / "m.onnx").read_bytes() == (tmp_path / "out.onnx").read_bytes()
    assert names(tmp_path) == ["copy.onnx", "m.onnx", "out.onnx"]


def test_same_bytes_whatever_the_hash_seed(tmp_path):
    onnx.save(stn(extra_node=True), tmp_path / "in.onnx")
    outputs = set()
    for seed in ("0", "1", "31337"):
        program = "import sys, rewriter; rewriter.fuse(*sys.argv[1:])"
        subprocess.run([sys.executable, "-c", program, tmp_path / "in.onnx", tmp_path / "out.onnx"],
                       check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        outputs.add((tmp_path / "out.onnx").read_bytes())
    assert len(outputs) == 1


def external_stn(folder, location: str = "data/bias.bin") -> onnx.ModelProto:
    """stn whose bias lies in a file, saved as in.onnx."""
    model = stn(extra_node=True)
    bias = next(t for t in model.graph.initializer if t.name == "bias").raw_data
    (folder / location).parent.mkdir(parents=True, exist_ok=True)
    (folder / location).write_bytes(b"pad!" + bias)
    onnx.save(externalize(model, "bias", location=location, offset=4, length=len(bias)), folder / "in.onnx")
    return model


def test_external_data_in_the_same_folder_is_shared(tmp_path, run):
    model = external_stn(tmp_path)
    written = (tmp_path / "data/bias.bin").stat()
    rewriter.fuse(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert names(tmp_path) == ["data", "data/bias.bin", "in.onnx", "out.onnx"]
    assert (tmp_path / "data/bias.bin").stat().st_mtime_ns == written.st_mtime_ns
    np.testing.assert_allclose(run(onnx.load(tmp_path / "out.onnx"), feeds())["y"], run(model, feeds())["y"], atol=1e-5)


@pytest.mark.parametrize("fusable", [True, False])
def test_external_data_is_copied_to_another_folder(tmp_path, fusable, run):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    model = external_stn(tmp_path / "a")
    report = rewriter.fuse(tmp_path / "a/in.onnx", tmp_path / "b/out.onnx", patterns=None if fusable else [])
    assert report.changed is fusable
    assert names(tmp_path / "b") == ["data", "data/bias.bin", "out.onnx"]
    assert (tmp_path / "b/data/bias.bin").read_bytes() == (tmp_path / "a/data/bias.bin").read_bytes()
    entries = [[(e.key, e.value) for t in onnx.load(path, load_external_data=False).graph.initializer
                for e in t.external_data] for path in (tmp_path / "a/in.onnx", tmp_path / "b/out.onnx")]
    assert entries[0] == entries[1]
    fused = onnx.load(tmp_path / "b/out.onnx")
    np.testing.assert_allclose(run(fused, feeds())["y"], run(model, feeds())["y"], atol=1e-5)


def test_equal_data_file_is_left_alone(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b/data").mkdir(parents=True)
    external_stn(tmp_path / "a")
    (tmp_path / "b/data/bias.bin").write_bytes((tmp_path / "a/data/bias.bin").read_bytes())
    before = (tmp_path / "b/data/bias.bin").stat()
    rewriter.fuse(tmp_path / "a/in.onnx", tmp_path / "b/out.onnx")
    after = (tmp_path / "b/data/bias.bin").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_other_data_file_is_refused_unless_allowed(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b/data").mkdir(parents=True)
    external_stn(tmp_path / "a")
    (tmp_path / "b/data/bias.bin").write_bytes(b"of another model")
    with pytest.raises(OutputError, match="other content"):
        rewriter.fuse(tmp_path / "a/in.onnx", tmp_path / "b/out.onnx")
    assert names(tmp_path / "b") == ["data", "data/bias.bin"]
    assert (tmp_path / "b/data/bias.bin").read_bytes() == b"of another model"
    rewriter.fuse(tmp_path / "a/in.onnx", tmp_path / "b/out.onnx", overwrite_data=True)
    assert (tmp_path / "b/data/bias.bin").read_bytes() == (tmp_path / "a/data/bias.bin").read_bytes()
    assert names(tmp_path / "b") == ["data", "data/bias.bin", "out.onnx"]


@pytest.mark.parametrize("overwrite_data", [False, True])
def test_other_data_that_another_run_writes_meanwhile(tmp_path, monkeypatch, overwrite_data):
    """Between the look at the folder and the renames: as if it had been there before."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    external_stn(tmp_path / "a")
    lock = saving.locked

    def quicker(folder):
        (tmp_path / "b/data/bias.bin").write_bytes(b"of another model")
        (tmp_path / "b/out.onnx").write_bytes(NEW)
        return lock(folder)

    monkeypatch.setattr(saving, "locked", quicker)
    if overwrite_data:
        rewriter.fuse(tmp_path / "a/in.onnx", tmp_path / "b/out.onnx", overwrite_data=True)
        assert (tmp_path / "b/data/bias.bin").read_bytes() == (tmp_path / "a/data/bias.bin").read_bytes()
        assert (tmp_path / "b/out.onnx").read_bytes() != NEW
    else:
        with pytest.raises(OutputError, match=r"bias.bin: was changed meanwhile by another run; run this one again"):
            rewriter.fuse(tmp_path / "a/in.onnx", tmp_path / "b/out.onnx")
        assert (tmp_path / "b/data/bias.bin").read_bytes() == b"of another model"
        assert (tmp_path / "b/out.onnx").read_bytes() == NEW
    assert names(tmp_path / "b") == ["data", "data/bias.bin", "out.onnx"]


def test_a_failing_copy_takes_everything_back(tmp_path):
    (tmp_path / "a/more").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "a/one").write_bytes(bytes(100))
    (tmp_path / "a/more/two").write_bytes(bytes(1 << 21))
    with little_room(), pytest.raises(OutputError, match="cannot be written"):
        saving.save(NEW, tmp_path / "b/m", folder=str(tmp_path / "a"), locations=["one", "more/two"])
    assert names(tmp_path / "b") == []


def test_data_does_not_leave_the_output_folder_through_a_link(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "elsewhere").mkdir()
    external_stn(tmp_path / "a")
    (tmp_path / "b/data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="symbolic link"):
        rewriter.fuse(tmp_path / "a/in.onnx", tmp_path / "b/out.onnx")
    assert names(tmp_path / "elsewhere") == []
    assert names(tmp_path / "b") == ["data"]


def test_output_must_not_be_the_models_own_data(tmp_path):
    external_stn(tmp_path)
    weights = (tmp_path / "data/bias.bin").read_bytes()
    with pytest.raises(OutputError, match="external data of this very model"):
        rewriter.fuse(tmp_path / "in.onnx", tmp_path / "data/bias.bin")
    assert (tmp_path / "data/bias.bin").read_bytes() == weights


def test_base_grid_that_is_fused_away_needs_no_data_file(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    base = base_grid().tobytes()
    (tmp_path / "a/base.bin").write_bytes(base)
    onnx.save(externalize(stn(), "base", location="base.bin"), tmp_path / "a/in.onnx")
    report = rewriter.fuse(tmp_path / "a/in.onnx", tmp_path / "b/out.onnx")
    assert report.count("AffineGridSample") == 1
    assert names(tmp_path / "b") == ["out.onnx"]
