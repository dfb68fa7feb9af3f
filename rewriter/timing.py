"""A first honest ratio: how long a model takes fused and unfused in ONNX Runtime, in turns on the same inputs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping

import numpy as np

from rewriter.errors import RunError

WARM_UP = 3
RESAMPLES = 1000
FOLDER_KEY = "session.model_external_initializers_file_folder_path"
_NUMPY = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "bool": np.bool_,
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16


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


def measure(unfused: bytes, fused: bytes, *, folder: str = "", dims: Mapping[str, int] | None = None, threads: int = 2,
            seconds: float = 5.0, least: int = 20) -> Timing:
    """Time two serialized models with the same inputs, in turns, until `seconds` are over and `least` rounds done.

    Args:
        unfused, fused: the models.
        folder: where their external data lies.
        dims: sizes of open dims, by symbol, or as "input:axis" for one without a name.
        threads: intra-op threads.

    Raises:
        RunError: ONNX Runtime does not load or run one of them, or an input is no tensor.
    """
    import onnxruntime as ort

    before, after = (_session(ort, model, folder, threads, label)
                     for model, label in ((unfused, "unfused"), (fused, "fused")))
    shapes, assumed = _shapes(before.get_inputs(), dict(dims or {}))
    feeds = {value.name: _random(ort, value, shapes[value.name]) for value in before.get_inputs()}
    runs = [_runner(session, feeds, label, assumed) for session, label in ((before, "unfused"), (after, "fused"))]
    times = interleave(*runs, seconds=seconds, least=least)
    ratio, low, high = ratio_of_medians(times)
    return Timing(
        ratio, low, high, *(float(t) for t in np.median(times, axis=0)), rounds=len(times), threads=threads,
        runtime=ort.__version__,
        inputs=tuple((value.name, _element(value.type), shapes[value.name]) for value in before.get_inputs()),
        assumed=assumed)


def interleave(first: Callable[[], object], second: Callable[[], object], *, seconds: float, least: int) -> np.ndarray:
    """Run times of both, [rounds, 2]. The order alternates, so that neither always finds the caches of the other."""
    for _ in range(WARM_UP):
        first()
        second()
    pairs: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(pairs) < least or time.perf_counter() < end:
        if len(pairs) % 2:
            b, a = _timed(second), _timed(first)
        else:
            a, b = _timed(first), _timed(second)
        pairs.append((a, b))
    return np.array(pairs)


def ratio_of_medians(times: np.ndarray) -> tuple[float, float, float]:
    """Ratio of the second column's median to the first's, and its 95 % interval from resampled rounds."""
    generator = np.random.default_rng(0)
    ratios = []
    for _ in range(RESAMPLES):
        first, second = np.median(times[generator.integers(0, len(times), len(times))], axis=0)
        ratios.append(second / first)
    first, second = np.median(times, axis=0)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(second / first), float(low), float(high)


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _session(ort, model: bytes, folder: str, threads: int, label: str):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what fails is raised, and said by us
    if folder:
        options.add_session_config_entry(FOLDER_KEY, folder)
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common base
        raise RunError(f"ONNX Runtime {ort.__version__} does not load the {label} model: {_line(error)}") from None


def _runner(session, feeds: dict, label: str, assumed: Mapping[str, int]) -> Callable[[], object]:
    def run():
        return session.run_with_ort_values(None, feeds)

    try:
        run()
    except Exception as error:
        hint = f" (sizes were assumed: {assumed}; set them with --dim)" if assumed else ""
        raise RunError(f"ONNX Runtime fails to run the {label} model: {_line(error)}{hint}") from None
    return run


def _shapes(inputs, dims: dict[str, int]) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Concrete shapes by input name, and the sizes that had to be assumed."""
    shapes, assumed = {}, {}
    for value in inputs:
        sizes = []
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, int):
                sizes.append(dim)
                continue
            name = dim or f"{value.name}:{axis}"
            if name not in dims:
                dims[name] = assumed[name] = _likely(axis, len(value.shape))
            sizes.append(dims[name])
        shapes[value.name] = tuple(sizes)
    return shapes, assumed


def _likely(axis: int, rank: int) -> int:
    """A size for an open dim: one sample, three channels, and an image big enough to time."""
    if axis == 0:
        return 1
    return 256 if rank >= 4 and axis >= 2 else 3 if rank >= 4 else 16


def _random(ort, value, shape: tuple[int, ...]):
    """Seeded data of the right type: [0, 1) for floats, near the identity where it looks like an affine matrix."""
    kind = _element(value.type)
    generator = np.random.default_rng(0)
    if kind == "bfloat16":
        bits = (_floats(generator, shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _BFLOAT16)
    if kind not in _NUMPY:
        raise RunError(f"no input can be made for {value.name!r}, which is a {value.type}")
    dtype = np.dtype(_NUMPY[kind])
    if dtype.kind == "f":
        array = _floats(generator, shape).astype(dtype)
    elif dtype.itemsize == 1 and dtype.kind == "u":
        array = generator.integers(0, 256, shape).astype(dtype)  # an image
    else:
        array = generator.integers(0, 2, shape).astype(dtype)  # an index that is always in range, or nearly
    return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


def _floats(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    array = generator.random(shape)
    if len(shape) == 3 and shape[1:] in ((2, 3), (3, 4)):
        return np.eye(*shape[1:]) + 0.1 * (array - 0.5)
    return array


def _element(kind: str) -> str:
    return kind.removeprefix("tensor(").removesuffix(")")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]
