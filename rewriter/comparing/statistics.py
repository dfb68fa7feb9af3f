"""Ratios of run times with their intervals, and when enough was measured."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

import numpy as np

WARM_UP = 3
RESAMPLES = 1000
FEW = 10  # rounds below which resampling tells too narrow an interval
NARROW = 1.04  # upper end of a ratio's interval over its lower end


@dataclasses.dataclass(frozen=True)
class Ratio:
    """How many times as fast one thing is as another, with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Spread:
    """Run times, in seconds.

    Attributes:
        median: of the rounds.
        low, high: 95 % bootstrap interval of the median.
        first, third: quartiles of the rounds.
        rounds: how many.
    """

    median: float
    low: float
    high: float
    first: float
    third: float
    rounds: int


def interleave(first: Callable[[], object], second: Callable[[], object], *, seconds: float, least: int) -> np.ndarray:
    """Run times of both, [rounds, 2]. The order alternates, so that neither always finds the caches of the other."""
    for _ in range(WARM_UP):
        first()
        second()
    pairs: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(pairs) < least or time.perf_counter() < end:
        if len(pairs) % 2:
            b, a = timed(second), timed(first)
        else:
            a, b = timed(first), timed(second)
        pairs.append((a, b))
    return np.array(pairs)


def timed(run: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def ratio_of_medians(times: np.ndarray) -> tuple[float, float, float]:
    """Ratio of the second column's median to the first's, and its 95 % interval from resampled rounds.

    Args:
        times: [rounds, 2]; the two of a round were measured one after the other, and are drawn together.
    """
    medians = _resampled_medians(times)
    first, second = np.median(times, axis=0)
    low, high = np.quantile(medians[:, 1] / medians[:, 0], (0.025, 0.975))
    return float(second / first), float(low), float(high)


def speedup(reference: np.ndarray, other: np.ndarray) -> Ratio:
    """How many times as fast `other` is as `reference`, both [rounds] and measured in the same rounds.

    Where the rounds are few the interval holds every round's own ratio.
    """
    value, low, high = ratio_of_medians(np.stack([other, reference], axis=1))
    if len(other) < FEW:
        ratios = reference / other
        low, high = min(low, float(ratios.min())), max(high, float(ratios.max()))
    return Ratio(value, low, high)


def spread(times: np.ndarray) -> Spread:
    """The median of [rounds], and how far they scatter."""
    low, high = np.quantile(_resampled_medians(times[:, None]), (0.025, 0.975))
    first, median, third = np.quantile(times, (0.25, 0.5, 0.75))
    return Spread(float(median), float(low), float(high), float(first), float(third), len(times))


def is_narrow(ratio: Ratio) -> bool:
    """Whether more rounds would tell little more."""
    return ratio.high <= NARROW * ratio.low


def judge(ratio: Ratio, control: Ratio | None) -> str:
    """"faster", "slower" or "noise".

    Args:
        ratio: how many times as fast.
        control: of a model against itself. Where that differs from 1 beyond its own interval, the machine or the
            processes differ by themselves, and only what lies further out than this counts.
    """
    bias = 0.0
    if control is not None and not control.low <= 1 <= control.high:
        bias = abs(math.log(control.value))
    if math.log(ratio.low) > bias:
        return "faster"
    return "slower" if math.log(ratio.high) < -bias else "noise"


def _resampled_medians(times: np.ndarray) -> np.ndarray:
    """Medians [RESAMPLES, columns] of [rounds, columns] drawn with replacement, seeded."""
    generator = np.random.default_rng(0)
    return np.array([np.median(times[generator.integers(0, len(times), len(times))], axis=0)
                     for _ in range(RESAMPLES)])
