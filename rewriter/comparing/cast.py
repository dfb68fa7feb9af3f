"""The variants at work: their processes, what they are fed, and whatever goes wrong with one of them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from rewriter.comparing.report import Variant
from rewriter.comparing.variants import Plan
from rewriter.workers import Worker, WorkerError, one_line

_ABSENT = ("Unavailable", "ModuleNotFoundError")


class Cast:
    """Opens variants, and lets go of those that fail, with one line that says why.

    Args:
        plans: the variants; those that are missing are not opened.
    """

    def __init__(self, plans: Iterable[Plan]):
        self._plans = {plan.variant.key: plan for plan in plans}
        self._players: dict[str, object] = {}

    def __enter__(self) -> Cast:
        """Start all processes, so that they import what they need at the same time."""
        for key, plan in self._plans.items():
            if not plan.variant.missing:
                named = isinstance(plan.runner, str)
                self._players[key] = Worker(plan.runner, lean=True) if named else _Here(plan.runner)
        return self

    def __exit__(self, *exception) -> None:
        for player in self._players.values():
            player.close()
        self._players.clear()

    def open(self, key: str) -> bool:
        """Make the variant's session."""
        plan = self._plans[key]
        if plan.variant.missing:
            return False
        opened = self.ask(key, "open", "does not load", **plan.options)
        if opened is None:
            return False
        plan.variant.runtime, plan.variant.creation = opened
        return True

    def ask(self, key: str, method: str, what: str, *args, **keywords):
        """What a variant answers, or None if that was the end of it; `what` it then did ("does not run")."""
        try:
            return self._players[key].call(method, *args, **keywords)
        except Exception as error:
            self.drop(key, error, what)
            return None

    def turn(self, key: str) -> Callable[[float], list[float]]:
        """For `racing.race`."""
        return lambda seconds: self._players[key].call("burst", seconds)

    def drop(self, key: str, error: Exception, what: str) -> None:
        """Note what went wrong, and end the process."""
        variant = self._plans[key].variant
        if isinstance(error, WorkerError) and error.kind in _ABSENT:
            variant.missing = str(error)
        else:
            variant.failed = f"{what}: {one_line(error)}"
        self._players.pop(key).close()

    def feed(self, key: str, arrays: dict[str, np.ndarray], names: list[str]) -> dict[str, np.ndarray] | None:
        """Feed a variant and run it: outputs by name, and its memory noted; None if it failed."""
        self.ask(key, "feed", "does not take the inputs", arrays)
        if key not in self._players:
            return None
        self._variant(key).memory = self.ask(key, "settle", "does not run")
        if key not in self._players:
            return None
        values = self.ask(key, "values", "does not run")
        if values is not None and set(values) != set(names) and len(values) == len(names):  # by position
            values = dict(zip(names, values.values()))
        return values

    def try_feed(self, key: str, arrays: dict[str, np.ndarray], names: list[str]) -> tuple[dict, str]:
        """As `feed`, but a failure is only told, and the variant may try again with something else."""
        try:
            self._players[key].call("feed", arrays)
            return dict(zip(names, self._players[key].call("values").values())), ""
        except Exception as error:
            if not self._players[key].alive:
                self.drop(key, error, "does not run")
            return {}, one_line(error)

    @property
    def playing(self) -> list[str]:
        """Keys of those that are alive, in the order of the plans."""
        return [key for key in self._plans if key in self._players]

    @property
    def variants(self) -> list[Variant]:
        """All of them."""
        return [plan.variant for plan in self._plans.values()]

    def _variant(self, key: str) -> Variant:
        return self._plans[key].variant


class _Here:
    """An object of this process, called as a worker is."""

    alive = True

    def __init__(self, runner):
        self._runner = runner

    def call(self, method: str, *args, **keywords):
        return getattr(self._runner, method)(*args, **keywords)

    def close(self) -> None:
        self._runner.close()
