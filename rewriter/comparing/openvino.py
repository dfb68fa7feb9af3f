"""A model in OpenVINO, which does not expand functions: a fused model's are inlined, unless our extension is there."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import secrets

import numpy as np
import onnx

from rewriter.comparing.runners import Runner

_EXTENSION = "rewriter.runtimes.openvino"


class OpenVino(Runner):
    """A model in OpenVINO on the CPU, in float32 or better."""

    def __init__(self):
        super().__init__()
        os.environ.setdefault("CI", "true")  # openvino's telemetry respects it; else it leaves a process behind
        with contextlib.suppress(ImportError):  # `prepare` tells
            import openvino  # noqa: F401

    def prepare(self) -> str:
        import openvino

        self._core, self._request, self._tensors = openvino.Core(), None, {}
        functions = bool(onnx.load(self.options["path"], load_external_data=False).functions)
        extended = functions and self._extend()
        self._path = self._readable(inline=functions and not extended)
        how = "" if not functions else " with our extension" if extended else ", functions inlined"
        return f"OpenVINO {openvino.__version__.split('-')[0]}{how}"

    def make(self) -> None:
        settings = {"INFERENCE_NUM_THREADS": self.options["threads"], "PERFORMANCE_HINT": "LATENCY",
                    "INFERENCE_PRECISION_HINT": "f32"}
        compiled = self._core.compile_model(self._core.read_model(self._path), "CPU", settings)
        self._outputs = [output.get_any_name() for output in compiled.outputs]
        self._request = compiled.create_infer_request()
        self._set()

    def drop(self) -> None:
        self._request = None

    def feed(self, arrays: dict[str, np.ndarray]) -> None:
        import openvino

        self._tensors = {name: openvino.Tensor(array) for name, array in arrays.items()}
        self._set()

    def run(self) -> object:
        return self._request.infer()

    def fetch(self, outputs) -> dict[str, np.ndarray]:
        return {name: np.array(self._request.get_output_tensor(index).data)
                for index, name in enumerate(self._outputs)}

    def _extend(self) -> bool:
        """Teach OpenVINO our operators, if this onnx-warpfuse can."""
        if importlib.util.find_spec(_EXTENSION) is None:
            return False
        importlib.import_module(_EXTENSION).register(self._core)
        return True

    def _set(self) -> None:
        for name, tensor in self._tensors.items():
            self._request.set_tensor(name, tensor)

    def _readable(self, *, inline: bool) -> str:
        """A file that OpenVINO can read: the model's own, or one with its functions inlined and its data at hand."""
        path, folder = self.options["path"], self.options["folder"]
        if not inline and (not folder or os.path.realpath(folder) == os.path.realpath(os.path.dirname(path) or ".")):
            return path
        proto = onnx.load(path, load_external_data=False)
        if folder:
            onnx.load_external_data_for_model(proto, folder)
        if inline:
            from onnx.inliner import inline_local_functions

            proto = inline_local_functions(proto)
        copy = os.path.join(self.options["scratch"], f"openvino-{secrets.token_hex(4)}.onnx")
        onnx.save(proto, copy)
        return copy
