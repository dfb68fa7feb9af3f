"""Turns, their order, and when the race ends; nothing here takes any time."""

from __future__ import annotations

import numpy as np

from rewriter.comparing.racing import ENOUGH, LEAST, race
from rewriter.comparing.statistics import speedup


class Track:
    """A clock that only turns move, and runners of known speed and scatter."""

    def __init__(self, speeds: dict[str, float], scatter: float):
        self.now, self.calls, self.generator = 0.0, [], np.random.default_rng(0)
        self.turns = {key: self._turn(key, seconds, scatter) for key, seconds in speeds.items()}

    def _turn(self, key, seconds, scatter):
        def turn(burst):
            self.calls.append(key)
            times = seconds * self.generator.lognormal(0, scatter, 3)
            self.now += times.sum()
            return times
        return turn

    def race(self, pairs, seconds=100.0, failed=None):
        return race(self.turns, pairs, seconds=seconds, clock=lambda: self.now,
                    failed=failed or (lambda key, error: None))


def test_the_order_turns_around():
    track = Track({"a": 1.0, "b": 1.0, "c": 1.0}, 0)
    track.race([], seconds=0)
    assert "".join(track.calls[:9]) == "abccbaabc"
    assert len(track.calls) == 3 * LEAST


def test_it_ends_when_the_ratio_is_known():
    track = Track({"a": 0.02, "b": 0.01}, 0.001)
    times = track.race([("b", "a")])
    assert len(times["a"]) == len(times["b"]) == ENOUGH
    assert abs(speedup(times["a"], times["b"]).value - 2) < 0.01


def test_it_goes_on_while_it_is_not():
    track = Track({"a": 0.02, "b": 0.01}, 0.5)
    times = track.race([("b", "a")])
    ratio = speedup(times["a"], times["b"])
    assert len(times["a"]) > 10 * ENOUGH
    assert ratio.low < 2 < ratio.high


def test_it_ends_with_the_time():
    track = Track({"a": 1.0, "b": 1.0}, 2.0)
    track.race([("b", "a")], seconds=60)
    assert track.now < 120


def test_one_that_fails_leaves():
    track, told = Track({"a": 0.01, "b": 0.01}, 0.001), []
    turn = track.turns["b"]
    track.turns["b"] = lambda burst: turn(burst) if track.calls.count("b") < 4 else 1 / 0
    times = track.race([("b", "a")], failed=lambda key, error: told.append((key, type(error))))
    assert told == [("b", ZeroDivisionError)]
    assert list(times) == ["a"]
