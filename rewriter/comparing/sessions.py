"""ONNX Runtime sessions, and arrays on their way in and out; for `--time` and the processes of `--compare` alike."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

import numpy as np

FOLDER_KEY = "session.model_external_initializers_file_folder_path"
_BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16


def make_session(model: bytes | str, *, folder: str = "", threads: int, provider: str = "CPUExecutionProvider",
                 library: str | None = None, profile: str | None = None):
    """A session on a fixed number of threads that logs nothing: what fails is raised.

    Args:
        model: its bytes or its path.
        folder: where external data lies, for bytes.
        threads: intra-op threads.
        provider: execution provider; what it does not take runs on the CPU.
        library: a custom-op library.
        profile: prefix of the file for a profile.

    Raises:
        Exception: whatever ONNX Runtime raises; its exceptions have no common base.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if folder:
        options.add_session_config_entry(FOLDER_KEY, folder)
    if library is not None:
        options.register_custom_ops_library(library)
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    return ort.InferenceSession(model, options, providers=list(dict.fromkeys([provider, "CPUExecutionProvider"])))


def bound(session, values: Mapping[str, object]) -> Callable[[], object]:
    """A call that runs a session on these OrtValues; `outputs_of` reads what the last one gave.

    Bound once, as `run_with_ort_values` looks devices up for some thirty microseconds in every call.
    """
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name)  # on the CPU, allocated by every run

    def run():
        session.run_with_iobinding(binding)
        return binding
    return run


def outputs_of(session, binding) -> dict[str, np.ndarray]:
    """The outputs of a run, by name."""
    return {output.name: to_array(value) for output, value in zip(session.get_outputs(), binding.get_outputs())}


def to_value(array: np.ndarray):
    """An OrtValue on the CPU; bfloat16 is ml_dtypes'."""
    import onnxruntime as ort

    if array.dtype.name == "bfloat16":
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), _BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(array)


def to_array(value) -> np.ndarray:
    """An OrtValue as an array of its own."""
    if value.is_tensor() and value.element_type() == _BFLOAT16:
        import ml_dtypes

        raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
        return np.frombuffer(raw, ml_dtypes.bfloat16).reshape(value.shape())
    return value.numpy()
