"""`rewriter.library_path` and `rewriter.session_options`."""

from __future__ import annotations

import importlib.metadata
import warnings
from pathlib import Path

import onnxruntime as ort
import pytest

import rewriter
from rewriter.errors import KernelsError
from rewriter.runtimes import onnxruntime as runtime


def test_the_library_is_where_it_is_said_to_be(library):
    path = Path(library)
    assert path.is_absolute() and path.is_file()
    assert path.parent == Path(rewriter.__file__).resolve().parent / "kernels"


def test_options_are_fresh_every_time():
    first, second = rewriter.session_options(), rewriter.session_options(["CPUExecutionProvider"])
    assert isinstance(first, ort.SessionOptions) and first is not second


@pytest.mark.parametrize("provider", ["CUDAExecutionProvider", ("TensorrtExecutionProvider", {"device_id": 0})])
def test_beside_a_gpu_only_on_request(provider, monkeypatch):
    calls = []
    monkeypatch.setattr(runtime, "library_path", lambda: calls.append(1) or rewriter.library_path())
    with pytest.warns(UserWarning, match="not registered beside .*ExecutionProvider.* beside_gpu=True registers them"):
        rewriter.session_options([provider, "CPUExecutionProvider"])
    assert not calls
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rewriter.session_options([provider, "CPUExecutionProvider"], beside_gpu=True)
    assert calls


class _Distribution:
    def __init__(self, wheel):
        self.wheel = wheel

    def read_text(self, name):
        return self.wheel if name == "WHEEL" else None


@pytest.mark.parametrize(("wheel", "said"), [
    ("Root-Is-Purelib: true\nTag: py3-none-any\n", "installed as pure Python, because its kernels did not compile"),
    ("Root-Is-Purelib: false\n", "not where rewriter was imported from")])
def test_what_is_missing_is_said(wheel, said, monkeypatch):
    monkeypatch.setattr(runtime, "NAMES", dict.fromkeys(("linux", "darwin", "win32"), "absent"))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: _Distribution(wheel))
    for function in (rewriter.library_path, rewriter.session_options):
        with pytest.raises(KernelsError, match=f"absent does not exist: .*{said}"):
            function()


def test_a_library_that_does_not_load_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "broken.so").write_bytes(b"not a library")
    monkeypatch.setattr(runtime, "library_path", lambda: str(tmp_path / "broken.so"))
    with pytest.raises(KernelsError, match=r"does not load .*broken\.so"):
        rewriter.session_options()
