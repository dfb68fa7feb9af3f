"""Statistics on synthetic timings whose ratios are known."""

from __future__ import annotations

import numpy as np
import pytest

from rewriter.comparing import statistics
from rewriter.comparing.statistics import Ratio, is_narrow, judge, speedup, spread


def drifting(true: float, rounds: int = 400, noise: float = 0.05) -> np.ndarray:
    """Timings [rounds, 2] of a machine that slows down and recovers; the second column is `true` times the first."""
    generator = np.random.default_rng(3)
    drift = 1 + 0.5 * np.sin(np.linspace(0, 9, rounds))[:, None]
    return drift * generator.lognormal(0, noise, (rounds, 2)) * [1e-3, true * 1e-3]


@pytest.mark.parametrize("true", [0.25, 1.0, 1.3])
def test_ratio_on_known_ratios(true):
    ratio, low, high = statistics.ratio_of_medians(drifting(true))
    assert low <= ratio <= high
    assert low < true < high
    assert high - low < 0.25 * true


def test_speedup_is_the_inverse():
    times = drifting(0.25)
    ratio = speedup(times[:, 0], times[:, 1])
    assert ratio.low < 4 < ratio.high
    assert ratio.value == pytest.approx(np.median(times[:, 0]) / np.median(times[:, 1]))


def test_intervals_cover():
    """Of a hundred experiments the 95 % interval misses the truth in few."""
    generator = np.random.default_rng(5)
    missed = 0
    for _ in range(100):
        reference, other = generator.lognormal(0, 0.1, 60), 0.5 * generator.lognormal(0, 0.1, 60)
        ratio = speedup(reference, other)
        missed += not ratio.low <= 2 <= ratio.high
    assert missed <= 12


def test_few_rounds_give_a_wide_interval():
    reference, other = np.array([1.0, 1.0, 1.0, 100.0]), np.array([0.5, 0.5, 0.5, 0.5])
    ratio = speedup(reference, other)
    assert (ratio.value, ratio.high) == (2, 200)


def test_spread():
    times = np.arange(1.0, 102.0)
    result = spread(times)
    assert (result.median, result.first, result.third, result.rounds) == (51, 26, 76, 101)
    assert 35 < result.low < 51 < result.high < 67


def test_narrow():
    assert is_narrow(Ratio(2.0, 1.97, 2.03))
    assert not is_narrow(Ratio(2.0, 1.9, 2.1))


@pytest.mark.parametrize(("ratio", "control", "outcome"), [
    (Ratio(2, 1.9, 2.1), None, "faster"),
    (Ratio(0.5, 0.4, 0.6), None, "slower"),
    (Ratio(1.02, 0.98, 1.06), None, "noise"),
    (Ratio(1.05, 1.02, 1.08), Ratio(1.0, 0.99, 1.01), "faster"),
    (Ratio(1.05, 1.02, 1.08), Ratio(1.1, 1.05, 1.15), "noise"),  # a model against itself differs by more
    (Ratio(0.95, 0.92, 0.98), Ratio(1.1, 1.05, 1.15), "noise"),
    (Ratio(2, 1.9, 2.1), Ratio(1.1, 1.05, 1.15), "faster"),
])
def test_judge(ratio, control, outcome):
    assert judge(ratio, control) == outcome


def test_interleaving_alternates():
    calls = []
    times = statistics.interleave(lambda: calls.append("a"), lambda: calls.append("b"), seconds=0, least=4)
    assert times.shape == (4, 2)
    assert "".join(calls[2 * statistics.WARM_UP:]) == "abbaabba"
