"""Tools of others that rewrite a model, in a process of their own: some models kill them, which is no fault of ours."""

from __future__ import annotations

import atexit
import tempfile
from pathlib import Path

import onnx

from rewriter.workers import Worker, WorkerError

PATIENCE = 60.0  # seconds for a model
_workers: list[Worker] = []


class Tools:
    """What the child makes. Each method takes a serialized model and returns another that computes the same."""

    def onnxsim(self, model: bytes) -> bytes:
        """Simplified."""
        import onnxsim

        return onnxsim.simplify(onnx.ModelProto.FromString(model))[0].SerializeToString()

    def onnxslim(self, model: bytes) -> bytes:
        """Slimmed."""
        import onnxslim

        return onnxslim.slim(onnx.ModelProto.FromString(model)).SerializeToString()

    def onnxruntime(self, model: bytes) -> bytes:
        """With ONNX Runtime's basic optimizations."""
        import onnxruntime

        with tempfile.TemporaryDirectory() as folder:
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
            options.optimized_model_filepath = str(Path(folder, "model.onnx"))
            options.log_severity_level = 4
            onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            return Path(options.optimized_model_filepath).read_bytes()

    def convert(self, model: bytes, opset: int) -> bytes:
        """In a newer opset."""
        return onnx.version_converter.convert_version(onnx.ModelProto.FromString(model), opset).SerializeToString()


def rewritten(model: onnx.ModelProto, tool: str, *options) -> onnx.ModelProto:
    """What a tool makes of a model.

    Raises:
        WorkerError: the tool cannot, or it died of it.
    """
    if not _workers:
        atexit.register(_close)
        _workers.append(Worker("soak.tools:Tools"))
    try:
        made = _workers[0].call(tool, model.SerializeToString(), *options, timeout=PATIENCE)
    except WorkerError as error:
        if not error.kind:  # it died: the next model gets another
            _close()
        raise
    return onnx.ModelProto.FromString(made)


def _close() -> None:
    while _workers:
        _workers.pop().close()
