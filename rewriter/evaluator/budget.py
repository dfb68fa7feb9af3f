"""How much one run of the engine may spend on finding out what values are: a small file must not cost hours, or all
memory.

What is counted is deterministic, so the same model always gets as far. A model of ordinary size spends a small part.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Protocol

import numpy as np

WORK = 1 << 34  # bytes made and multiplications done: some ten seconds
WORK_A_NODE = 1 << 25  # of it for each node of the model besides,
MOST_WORK = 1 << 36  # up to here: a minute or two
STEP = 1 << 13  # what looking at one value counts: some microseconds
HELD = 2 << 30  # bytes that the arrays of one evaluator may hold
LIGHT = 1 << 20  # bytes; evaluators keep smaller arrays while another one works


class ExhaustedError(Exception):
    """A run has spent what it may. No EvaluationError: that is an answer about a value, of which there may be more to
    ask; this ends the search at an anchor, and the engine reports it."""


class Holder(Protocol):
    def forget(self, least: int) -> None:
        """Drop every array of more than `least` bytes."""


class Budget:
    """What is left, and which evaluator holds large arrays: one at a time.

    Args:
        nodes: how many the model has.
    """

    def __init__(self, nodes: int):
        self._left = min(WORK + WORK_A_NODE * nodes, MOST_WORK)
        self._building = False
        self._holder: weakref.ref[Holder] | None = None

    def spend(self, work: int) -> None:
        """
        Raises:
            ExhaustedError: nothing is left.
        """
        self._left -= work
        if self._left < 0 and not self._building:
            raise ExhaustedError("finding out what the model computes takes too long")

    def step(self) -> None:
        """As `spend`, for one value looked at."""
        self.spend(STEP)

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """What is proven gets written: nothing is refused meanwhile."""
        self._building = True
        try:
            yield
        finally:
            self._building = False

    def hold(self, holder: Holder) -> None:
        """An evaluator begins to work: what the one before it holds is forgotten, and computed again if need be."""
        last = self._holder() if self._holder is not None else None
        if last is not holder:
            if last is not None:
                last.forget(LIGHT)
            self._holder = weakref.ref(holder)


def owner(array: np.ndarray) -> np.ndarray:
    """The array whose memory this one looks at."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
