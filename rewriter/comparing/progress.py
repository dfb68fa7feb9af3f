"""How far a comparison is, and about how long it will still take."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[float, float, str], None]  # share done (0 to 1), seconds left, what is being done


class Progress:
    """Steps with the seconds each is thought to take.

    Args:
        report: called as often as something is known.
        steps: (what is done, seconds) in order.
    """

    def __init__(self, report: Report | None, steps: list[tuple[str, float]]):
        self._report, self._steps = report, steps
        self._step = -1

    def next(self) -> None:
        """The next step begins."""
        self._step = min(self._step + 1, len(self._steps) - 1)
        self.within(0.0)

    def within(self, share: float) -> None:
        """This much of the step is done."""
        if self._report is None:
            return
        total = sum(seconds for _, seconds in self._steps)
        doing, seconds = self._steps[self._step]
        left = sum(seconds for _, seconds in self._steps[self._step + 1:]) + (1 - share) * seconds
        self._report(1 - left / total if total else 1.0, left, doing)
