"""What must hold of any bytes at all. A `Broken` is a finding, and so is any exception but a RewriterError."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import rewriter
from rewriter.comparing.parity import difference
from rewriter.errors import InternalError, RewriterError

MOST_ELEMENTS = 1 << 16  # of a value that is run
onnxruntime.set_default_logger_severity(4)


class Broken(Exception):  # noqa: N818 (a finding)
    """A promise that was not kept."""


def read_and_fuse(data: bytes, feeds: dict[str, np.ndarray] | None = None) -> str:
    """Fuse a file of these bytes.

    Args:
        data: the file.
        feeds: inputs to run both models with, where the unfused one runs.

    Returns:
        "refused", "nothing", "fused" or, if both were run, "equal".

    Raises:
        Broken: something was written that must not have been, or is wrong.
        Exception: no RewriterError.
    """
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        source, target = Path(folder, "in.onnx"), Path(folder, "out.onnx")
        source.write_bytes(data)
        try:
            report = rewriter.fuse(source, target)
        except InternalError:
            raise
        except RewriterError as refusal:
            line = str(refusal)
            if os.listdir(folder) != ["in.onnx"]:
                raise Broken(f"refused, yet wrote {os.listdir(folder)}") from None
            if "\n" in line or not line:
                raise Broken(f"not one line: {line!r}") from None
            return "refused"
        made = target.read_bytes()
    if not report.changed:
        if made != data:
            raise Broken("nothing was fused, but the file changed")
        return "nothing"
    onnx.checker.check_model(onnx.ModelProto.FromString(made))
    if rewriter.fuse(onnx.ModelProto.FromString(made))[1].changed:
        raise Broken("fused twice, it changes once more")
    return "fused" if feeds is None else _compare(data, made, feeds)


def _compare(unfused: bytes, fused: bytes, feeds: dict[str, np.ndarray]) -> str:
    try:
        want = _run(unfused, feeds)
    except Exception:  # a mutated model need not run
        return "fused"
    got = _run(fused, feeds)
    for name, array in want.items():
        other = got[name]
        if other.shape != array.shape or other.dtype != array.dtype:
            raise Broken(f"{name} is {other.dtype}{list(other.shape)} instead of {array.dtype}{list(array.shape)}")
        if array.dtype.kind != "f":
            if not np.array_equal(array, other):
                raise Broken(f"{name}: other values")
            continue
        finite = np.abs(array[np.isfinite(array)].astype(np.float64))
        fine = {2: 2e-2, 4: 1e-3, 8: 1e-3}[array.dtype.itemsize]  # a wrong fusion is wrong by more than rounding
        bad = difference(other, array) > fine * max(1.0, finite.max(initial=0.0))
        if bad.mean() > 0.1:  # single elements may jump at the edge of a pixel
            raise Broken(f"{name}: {int(bad.sum())} of {bad.size} elements are off, at most by "
                         f"{difference(other, array).max()}")
    return "equal"


def _run(data: bytes, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    model = onnx.ModelProto.FromString(data)
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
        raise ValueError("not here")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    outputs = session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})
    return {value.name: array for value, array in zip(session.get_outputs(), outputs)
            if isinstance(array, np.ndarray)}
