"""ONNX Runtime on the CPU: where the library of custom operators is, and session options that load it."""

from __future__ import annotations

import importlib.metadata
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewriter.errors import KernelsError

if TYPE_CHECKING:
    import onnxruntime

NAMES = {"win32": "warpfuse_kernels.dll", "darwin": "libwarpfuse_kernels.dylib"}  # elsewhere .so
GPU = frozenset(f"{name}ExecutionProvider" for name in (
    "CANN", "CUDA", "Dml", "MIGraphX", "NvTensorRTRTX", "ROCM", "Tensorrt", "WebGPU"))


def library_path() -> str:
    """Absolute path of the custom-op library, for whoever loads it by name (C++, C#, Java, Triton).

    Raises:
        KernelsError: this installation has no library; the message says why.
    """
    path = Path(__file__).resolve().parents[1] / "kernels" / NAMES.get(sys.platform, "libwarpfuse_kernels.so")
    if not path.is_file():
        raise KernelsError(f"{path} does not exist: {_why()}")
    return str(path)


def session_options(providers: Sequence[str | tuple[str, dict[str, Any]]] | None = None, *,
                    beside_gpu: bool = False) -> onnxruntime.SessionOptions:
    """New session options with the kernels registered: all operators of `custom.ops`, on the CPU.

    Args:
        providers: what the session will be made with, as `onnxruntime.InferenceSession` takes it; None: the CPU alone.
        beside_gpu: register although a GPU provider is among them. Every node of these operators then runs on the
            CPU, and its tensors are copied there and back.

    Raises:
        KernelsError: this installation has no library, or ONNX Runtime (1.17 is the oldest) does not load it.

    Warns:
        UserWarning: beside a GPU provider the kernels are not registered; the model's own functions run there.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers or ()]
    gpu = next((name for name in names if name in GPU), None)
    if gpu is not None and not beside_gpu:
        warnings.warn(f"the kernels run on the CPU and are not registered beside {gpu}, where every tensor of theirs "
                      "would be copied there and back; beside_gpu=True registers them", stacklevel=2)
        return options
    path = library_path()
    try:
        options.register_custom_ops_library(path)
    except Exception as error:  # a plain RuntimeError in some versions, classes of onnxruntime's own in others
        raise KernelsError(f"ONNX Runtime {onnxruntime.__version__} does not load {path}: {error}") from error
    return options


def _why() -> str:
    """What this installation says about itself: a wheel that is pure Python is one whose kernels did not compile."""
    try:
        wheel = importlib.metadata.distribution("onnx-warpfuse").read_text("WHEEL") or ""
    except importlib.metadata.PackageNotFoundError:
        return "onnx-warpfuse is not installed, and `pip install .` is what compiles the kernels"
    if "Root-Is-Purelib: true" in wheel:
        return ("this onnx-warpfuse was installed as pure Python, because its kernels did not compile; with a C++17 "
                "compiler (gcc or clang) install it again, `pip install -v` shows what the compiler says")
    return "it is part of this installation, but not where rewriter was imported from"
