"""How the ratio changes with the work: the same processes at several sizes of some open dims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rewriter.comparing import parity
from rewriter.comparing.cast import Cast
from rewriter.comparing.inputs import Spec, check_dims, make_feeds
from rewriter.comparing.racing import race
from rewriter.comparing.report import Sweep, SweepPoint
from rewriter.comparing.statistics import speedup, spread
from rewriter.comparing.variants import FUSED, KERNELS, REFERENCE
from rewriter.errors import UsageError

CLOSE = 1.5  # a size this near to the last one gives way to it


def parse(text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Dims and sizes of "H,W=64..1080" (doubled from one to the other) or "batch=1,2,7".

    Raises:
        UsageError: it is neither.
    """
    names, equals, values = text.rpartition("=")
    dims = tuple(name.strip() for name in names.split(",") if name.strip())
    first, dots, last = values.partition("..")
    parts = [first, last] if dots else values.split(",")
    if not equals or not dims or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"--sweep: {text!r} is not DIM,DIM=FROM..TO or DIM=SIZE,SIZE")
    sizes = [int(part) for part in parts]
    return dims, tuple(_doubled(*sizes)) if dots else tuple(dict.fromkeys(sizes))


def sweep(cast: Cast, inputs: Sequence[Spec], names: list[str], dims: Sequence[str], sizes: Iterable[int], *,
          fixed: dict[str, int], given: dict, seed: int, seconds: float, jumping: bool,
          step: Callable[[float], None]) -> Sweep:
    """Values and times at every size.

    Args:
        cast: its ONNX Runtime variants on the CPU take part.
        inputs, names: the model's inputs, and the names of its outputs.
        dims, sizes: what is swept, and through which sizes; all dims have the same.
        fixed: sizes of other open dims.
        given: inputs that the user gave.
        seed: of the random data.
        seconds: for each size.
        jumping: of `parity.jumps`.
        step: told the share that is done.
    """
    points, sizes = [], list(sizes)
    for index, size in enumerate(sizes):
        feeds = make_feeds(inputs, dims={**fixed, **dict.fromkeys(dims, size)}, given=given, seed=seed)
        points.append(_point(cast, size, feeds, names, seconds, jumping,
                             lambda share, index=index: step((index + share) / len(sizes))))
    return Sweep(tuple(dims), points)


def check(inputs: Sequence[Spec], dims: Sequence[str]) -> None:
    """Refuse to sweep what is fixed.

    Raises:
        UsageError: names the open dims there are.
    """
    check_dims(inputs, dims, "--sweep")


def _point(cast: Cast, size: int, feeds, names: list[str], seconds: float, jumping: bool, step) -> SweepPoint:
    keys = [key for key in (REFERENCE, FUSED, KERNELS) if key in cast.playing]
    failed: dict[str, str] = {}
    values = {}
    for key in keys:
        values[key], failure = cast.try_feed(key, feeds.arrays, names)
        if failure:
            failed[key] = failure
    keys = [key for key in keys if key not in failed]
    if REFERENCE not in keys:
        return SweepPoint(size, {}, {}, float("nan"), True, failed)
    reference = values[REFERENCE]
    shapes = [array.shape for array in feeds.arrays.values()]
    allowed = parity.tolerances(reference, shapes, jumping=jumping, exact=None)
    errors = [error for key in keys if key != REFERENCE
              for error in parity.compare_outputs(values[key], reference, allowed, None)]
    times = race({key: cast.turn(key) for key in keys}, [(key, REFERENCE) for key in keys if key != REFERENCE],
                 seconds=seconds, step=step, failed=lambda key, error: failed.update({key: str(error)}))
    return SweepPoint(
        size, {key: spread(series) for key, series in times.items()},
        {key: speedup(times[REFERENCE], series) for key, series in times.items()
         if key != REFERENCE and REFERENCE in times},
        max((error.absolute for error in errors), default=0.0), all(error.good for error in errors), failed)


def _doubled(first: int, last: int) -> list[int]:
    if last < first:
        raise UsageError(f"--sweep: {first}..{last} runs backwards")
    sizes = [first]
    while sizes[-1] * 2 * CLOSE <= last or sizes[-1] * 2 == last:
        sizes.append(sizes[-1] * 2)
    if sizes[-1] != last:
        sizes.append(last)
    return sizes
