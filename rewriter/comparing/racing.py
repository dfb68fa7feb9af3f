"""Interleaved turns of several variants, each in its own process, until the ratios are known or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from rewriter.comparing.statistics import is_narrow, speedup

BURST = 0.03  # seconds of a variant's turn; one run at least
LEAST = 5  # rounds, however long they take
ENOUGH = 15  # rounds before an interval is believed


def race(turns: dict[str, Callable[[float], Sequence[float]]], pairs: Sequence[tuple[str, str]], *, seconds: float,
         failed: Callable[[str, Exception], None], step: Callable[[float], None] = lambda share: None,
         clock: Callable[[], float] = time.perf_counter) -> dict[str, np.ndarray]:
    """Median run times by variant and round, [rounds] float64 seconds; the same rounds for all.

    The order is turned around every round, so that nobody always follows the same neighbour.

    Args:
        turns: by variant, what runs it for about so many seconds and gives its run times.
        pairs: (variant, its reference): when all these ratios are narrow it is over.
        seconds: when it is over in any case, once there are `LEAST` rounds.
        failed: told of a variant whose turn raised, which is out of the race.
        step: told the share of the time that is over.
        clock: seconds.
    """
    turns = dict(turns)
    times: dict[str, list[float]] = {key: [] for key in turns}
    start, check, rounds = clock(), ENOUGH, 0
    while rounds < LEAST or clock() < start + seconds:
        for key in list(turns) if rounds % 2 == 0 else list(turns)[::-1]:
            try:
                times[key].append(float(np.median(turns[key](BURST))))
            except Exception as error:
                failed(key, error)
                del turns[key], times[key]
            step(min(1.0, (clock() - start) / seconds) if seconds else 1.0)
        rounds += 1
        if rounds >= check:
            check = int(rounds * 1.25) + 1
            if all(is_narrow(speedup(np.array(times[other]), np.array(times[key]))) for key, other in pairs
                   if key in times and other in times):
                break
        if not turns:
            break
    return {key: np.array(series) for key, series in times.items()}
