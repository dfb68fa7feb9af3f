"""Whether a fused model does what the unfused one did."""

from __future__ import annotations

import enum
import random

import numpy as np
import onnx
import onnxruntime
from onnx.inliner import inline_local_functions
from soak.compose import Composed
from soak.mutations import FLOATS, graphs, nodes

import rewriter
from rewriter.comparing.float64 import to_double
from rewriter.comparing.parity import difference, tolerances

SHAKEN = 12  # runs of the unfused model with inputs that rounding might have made
SHAKE = 4  # by so many rounding errors
# operators that runtimes sum up in another order when their neighbours or their layout change
SUMS = {"AveragePool", "Conv", "ConvTranspose", "Einsum", "Gemm", "GlobalAveragePool", "GridSample", "MatMul",
        "ReduceMean", "ReduceSum", "Resize", "Softmax"}


class Verdict(enum.Enum):
    """What became of a model."""

    EQUAL = "equal"
    NOTHING = "nothing to fuse, byte for byte"
    NOT_RUN = "ONNX Runtime does not run it unfused"
    INVALID = "not composed"
    WRONG = "disagrees"
    CRASHED = "crashed"


class WrongError(Exception):
    """What is wrong."""


def session(model: onnx.ModelProto, *, kernels: bool = False) -> onnxruntime.InferenceSession:
    """A session of one thread."""
    options = rewriter.session_options() if kernels else onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(made: onnxruntime.InferenceSession, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs by name; inputs that a tool has dropped are left out."""
    wanted = {value.name for value in made.get_inputs()}
    outputs = made.run(None, {name: array for name, array in feeds.items() if name in wanted})
    return {value.name: array for value, array in zip(made.get_outputs(), outputs)}


def judge(made: Composed, rng: random.Random, *, kernels: bool) -> tuple[Verdict, str, dict[str, int]]:
    """Fuse a model, run both, compare.

    Returns:
        The verdict, what it is about, how many nodes of each operator were made.
    """
    try:
        onnx.checker.check_model(made.model)
    except Exception as error:
        return Verdict.INVALID, _line(error), {}
    try:
        unfused = session(made.model)
        reference = run(unfused, made.feeds)
    except Exception as error:
        return Verdict.NOT_RUN, _line(error), {}
    try:
        counts = _fuse_and_compare(made, unfused, reference, rng, kernels=kernels)
    except WrongError as wrong:
        return Verdict.WRONG, str(wrong), {}
    except Exception as error:
        return Verdict.CRASHED, f"{type(error).__name__}: {_line(error)}", {}
    return (Verdict.NOTHING if counts is None else Verdict.EQUAL), "", counts or {}


def _fuse_and_compare(made: Composed, unfused: onnxruntime.InferenceSession, reference: dict[str, np.ndarray],
                      rng: random.Random, *, kernels: bool) -> dict[str, int] | None:
    """Nodes made by operator: none where turns cancel, None where nothing was fused."""
    before = made.model.SerializeToString(deterministic=True)
    fused, report = rewriter.fuse(made.model)
    if made.model.SerializeToString(deterministic=True) != before:
        raise WrongError("the caller's model was changed")
    if not report.changed:
        if fused.SerializeToString(deterministic=True) != before:
            raise WrongError("nothing was fused, but the model changed")
        return None
    onnx.checker.check_model(fused)
    if rng.random() < 0.2 and rewriter.fuse(fused)[1].changed:
        raise WrongError("fused twice, it changes once more")
    operators = {item.operator for item in report.fused if item.operator}
    exactly = operators <= {"Rot90"} and not any(node.op_type in SUMS for node in nodes(made.model))
    for label in ("functions", "kernels")[:2 if kernels else 1]:
        values = run(session(fused, kernels=label == "kernels"), made.feeds)
        wrong = _misfit(reference, values) or (
            _moved(reference, values) if exactly else _disagreement(made, unfused, reference, values))
        if wrong:
            raise WrongError(f"{label}: {wrong}")
    return {operator: report.count(operator) for operator in sorted(operators)}


def _misfit(reference: dict[str, np.ndarray], values: dict[str, np.ndarray]) -> str | None:
    """What is not alike before any value is looked at."""
    if values.keys() != reference.keys():
        return f"outputs {sorted(values)} instead of {sorted(reference)}"
    for name, want in reference.items():
        got = values[name]
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"{name} is {got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    return None


def _moved(reference: dict[str, np.ndarray], values: dict[str, np.ndarray]) -> str | None:
    """The first output that is not the same, where elements only went to other places."""
    for name, want in reference.items():
        off = difference(values[name], want)
        if off.any():
            return f"{name} differs in {int((off > 0).sum())} of {off.size} elements, though they only moved"
    return None


def _disagreement(made: Composed, unfused: onnxruntime.InferenceSession, reference: dict[str, np.ndarray],
                  values: dict[str, np.ndarray]) -> str | None:
    """The first output that no rounding explains."""
    bands = None
    # what is wide may come from what is narrow
    kind = narrowest(made.model)
    narrowed = {name: array.astype(kind) if array.dtype.kind == "f" else array for name, array in reference.items()}
    exact = _in_float64(made) if kind == np.float16 else None
    allowed = tolerances(narrowed, [array.shape for array in made.feeds.values()], jumping=False, exact=exact)
    for tolerance in allowed:
        name = tolerance.output
        got, want = values[name], reference[name]
        off = difference(got, want if exact is None or want.dtype.kind != "f" else exact[name])
        if off.max(initial=0.0) <= tolerance.allowed:
            continue
        bands = bands or _shaken(made, unfused, reference)
        low, high = bands[name]
        outside = np.maximum(low - got.astype(np.float64), got.astype(np.float64) - high)
        outside = np.where(off <= tolerance.allowed, 0.0, outside)
        margin = tolerance.allowed + 0.5 * (high - low)  # a few runs do not find the ends
        bad = ~(outside <= margin)
        if bad.any():
            place = tuple(int(i) for i in np.argwhere(bad)[0])
            return (f"{name}{list(place)} is {got[place]} instead of {want[place]}, {int(bad.sum())} of {bad.size} "
                    f"elements; allowed {tolerance.allowed:.2g}, rounding makes {low[place]} to {high[place]}")
    return None


def _in_float64(made: Composed) -> dict[str, np.ndarray] | None:
    """Outputs of the unfused model without rounding; None where that is not to be had.

    In float16, what rounding may do is so much that only the distance to these tells anything.
    """
    model = onnx.ModelProto()
    model.CopyFrom(made.model)
    feeds = {name: array.astype(np.float64) if array.dtype.kind == "f" else array
             for name, array in made.feeds.items()}
    try:
        values = run(session(to_double(inline_local_functions(model))), feeds)
    except Exception:  # ONNX Runtime has no such kernel
        return None
    return values if all(np.isfinite(array).all() for array in values.values() if array.dtype.kind == "f") else None


def narrowest(model: onnx.ModelProto) -> np.dtype:
    """The coarsest floating type anywhere in a model."""
    kinds = set()
    for graph in graphs(model):
        kinds.update(value.type.tensor_type.elem_type for value in (*graph.input, *graph.output))
        kinds.update(tensor.data_type for tensor in graph.initializer)
    for node in nodes(model):
        for attribute in node.attribute:
            kinds.update((attribute.t.data_type, *([attribute.i] if attribute.name == "to" else [])))
    order = (onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT)
    return np.dtype(FLOATS[next((kind for kind in order if kind in kinds), onnx.TensorProto.DOUBLE)])


def _shaken(made: Composed, unfused: onnxruntime.InferenceSession, reference: dict[str, np.ndarray],
            ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Between which bounds every element lies when the inputs move by a few rounding errors."""
    generator = np.random.default_rng(0)
    low, high = ({name: array.astype(np.float64) for name, array in reference.items()} for _ in range(2))
    for _ in range(SHAKEN):
        feeds = {}
        for name, array in made.feeds.items():
            if array.dtype.kind == "f":
                fine = max(float(np.finfo(array.dtype).eps), float(np.finfo(np.float32).eps))
                size = SHAKE * fine * float(np.abs(array.astype(np.float64)).max(initial=1.0))
                array = (array + size * generator.choice([-1, 1], array.shape)).astype(array.dtype)
            feeds[name] = array
        for name, array in run(unfused, feeds).items():
            if array.shape == low[name].shape:
                low[name] = np.minimum(low[name], array)
                high[name] = np.maximum(high[name], array)
    return {name: (low[name], high[name]) for name in low}


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
