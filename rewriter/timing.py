"""A first honest ratio: how long a model takes fused and unfused in ONNX Runtime, in turns on the same inputs.

It is quick and takes place in this process; `rewriter.comparing` is the thorough form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import onnx

from rewriter.comparing.inputs import input_specs, make_feeds
from rewriter.comparing.sessions import bound, make_session, to_value
from rewriter.comparing.statistics import interleave, ratio_of_medians
from rewriter.errors import RunError
from rewriter.workers import one_line


@dataclasses.dataclass(frozen=True)
class Timing:
    """Outcome of `measure`. Times are in seconds.

    Attributes:
        ratio: median time fused / median time unfused; below 1 the fused model is faster.
        low, high: 95 % bootstrap interval of the ratio, over pairs of runs.
        unfused, fused: median times.
        rounds: pairs of runs.
        threads: intra-op threads of each session.
        runtime: version of ONNX Runtime.
        inputs: (name, dtype, shape) of what was fed.
        assumed: sizes taken for dims that the model leaves open and the caller did not set, by symbol or "input:axis".
    """

    ratio: float
    low: float
    high: float
    unfused: float
    fused: float
    rounds: int
    threads: int
    runtime: str
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...]
    assumed: dict[str, int]


def measure(unfused: bytes, fused: bytes, *, folder: str = "", dims: Mapping[str, int] | None = None,
            given: Mapping[str, np.ndarray | tuple[int, ...]] | None = None, threads: int = 2, seconds: float = 5.0,
            least: int = 20) -> Timing:
    """Time two serialized models with the same inputs, in turns, until `seconds` are over and `least` rounds done.

    Args:
        unfused, fused: the models.
        folder: where their external data lies.
        dims: sizes of open dims, by symbol, or as "input:axis" for one without a name.
        given: by input an array, or a shape to be filled with random data.
        threads: intra-op threads.

    Raises:
        RunError: ONNX Runtime does not load or run one of them, or an input is no tensor.
        UsageError: `given` does not fit the model.
    """
    import onnxruntime as ort

    feeds = make_feeds(input_specs(onnx.ModelProto.FromString(unfused).graph), dims=dims, given=given)
    values = {name: to_value(array) for name, array in feeds.arrays.items()}
    runs = [_runner(_session(model, folder, threads, label), values, label, feeds.assumed)
            for model, label in ((unfused, "unfused"), (fused, "fused"))]
    times = interleave(*runs, seconds=seconds, least=least)
    ratio, low, high = ratio_of_medians(times)
    return Timing(
        ratio, low, high, *(float(t) for t in np.median(times, axis=0)), rounds=len(times), threads=threads,
        runtime=ort.__version__, inputs=tuple((spec.name, spec.dtype, spec.shape) for spec in feeds.specs),
        assumed=feeds.assumed)


def _session(model: bytes, folder: str, threads: int, label: str):
    import onnxruntime as ort

    try:
        return make_session(model, folder=folder, threads=threads)
    except Exception as error:  # its exceptions have no common base
        raise RunError(f"ONNX Runtime {ort.__version__} does not load the {label} model: {one_line(error)}") from None


def _runner(session, values: dict, label: str, assumed: Mapping[str, int]) -> Callable[[], object]:
    try:
        run = bound(session, values)
        run()
    except Exception as error:
        hint = f" (sizes were assumed: {assumed}; set them with --dim)" if assumed else ""
        raise RunError(f"ONNX Runtime fails to run the {label} model: {one_line(error)}{hint}") from None
    return run
