"""Kills and interrupts runs of the command line at random instants, and counts what they leave behind.

    python tests/interrupted.py --kills 500

Runs are forked from this process, which has everything imported. Half of them are killed after a random share of a
run's duration, half right before a random one of their calls that touch the folder. What must never be: a file that is
neither the old nor the new one, a model beside data that are not its own, a file of ours that cannot be recognised, a
next run that does not make the new model and clear up. Not collected by pytest; `test_interrupted.py` runs a few.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from small_models import externalize, stn

from rewriter import cli, drafts, saving

TEMPORARY = re.compile(r"\.warpfuse-[0-9a-f]{16}\.tmp")
SIZE = 3 << 20  # bytes of a data file: copying them is a good part of a run
CALLS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.chown", "os.listdir", "os.scandir",
         "fcntl.flock"}


@dataclasses.dataclass
class Scenario:
    """Something to be interrupted.

    Attributes:
        prepare: lays out an empty working directory.
        run: does it there; the exit code.
        files: what it writes, the file that refers to the others last.
        may_vanish: that file may be gone in between, since its data are overwritten.
    """

    prepare: Callable[[], None]
    run: Callable[[], int]
    files: list[str]
    may_vanish: bool = False
    many: bool = False  # with processes of its own: slower


def with_data(folder: str, seed: int) -> None:
    """stn and two data files, as in.onnx."""
    model, generator = stn(extra_node=True, name=f"seed {seed}"), np.random.default_rng(seed)
    os.makedirs(f"{folder}/deep")
    for name in ("weights", "deep/more"):
        values = generator.integers(0, 100, SIZE // 8)
        Path(folder, name).write_bytes(values.tobytes())
        model.graph.initializer.append(numpy_helper.from_array(values, name))
        model = externalize(model, name, location=name)
    onnx.save(model, f"{folder}/in.onnx")


def _beside() -> None:
    onnx.save(stn(), "in.onnx")
    onnx.save(stn(name="old"), "out.onnx")
    Path("report.json").write_text("{}")


def _linked() -> None:
    os.mkdir("real")
    onnx.save(stn(), "in.onnx")
    onnx.save(stn(name="old"), "real/model.onnx")
    os.symlink("real/model.onnx", "out.onnx")


def _to_copy() -> None:
    with_data("a", 1)
    os.mkdir("b")
    onnx.save(stn(name="old"), "b/out.onnx")


def _to_overwrite() -> None:
    with_data("a", 1)
    with_data("b", 2)
    os.rename("b/in.onnx", "b/out.onnx")


def _folder() -> None:
    os.mkdir("models")
    for index in range(3):
        onnx.save(stn(name=f"m{index}"), f"models/{index}.onnx")


def _page() -> None:
    Path("page.html").write_text("old" * SIZE)


def _write_page() -> int:
    with cli._termination_raised():  # as around all that the command line writes
        saving.write_text("new" * SIZE, "page.html")
    return 0


def _command(*arguments: str) -> Callable[[], int]:
    return lambda: cli.main([*arguments, "--quiet"])


SCENARIOS = {
    "report and model": Scenario(_beside, _command("in.onnx", "out.onnx", "--json", "report.json"),
                                 ["report.json", "out.onnx"]),
    "in place": Scenario(_beside, _command("in.onnx", "in.onnx"), ["in.onnx"]),
    "through a link": Scenario(_linked, _command("in.onnx", "out.onnx"), ["real/model.onnx"]),
    "data copied": Scenario(_to_copy, _command("a/in.onnx", "b/out.onnx"), ["b/weights", "b/deep/more", "b/out.onnx"]),
    "data overwritten": Scenario(_to_overwrite, _command("a/in.onnx", "b/out.onnx", "--overwrite-data"),
                                 ["b/weights", "b/deep/more", "b/out.onnx"], may_vanish=True),
    "page": Scenario(_page, _write_page, ["page.html"]),
    "--out-dir": Scenario(_folder, _command("models", "--out-dir", "fused", "--jobs", "1"),
                          ["fused/0.onnx", "fused/1.onnx", "fused/2.onnx"], many=True),
}


def fork(run: Callable[[], int], prelude: Callable[[], None] = lambda: None) -> int:
    """Run in a child with a process group of its own, which tells when it begins; its id."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setsid()
            os.close(read)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            prelude()
            os.write(write, b".")
            code = run()
        finally:
            with contextlib.suppress(KeyboardInterrupt):
                drafts.remove_unfinished()  # as the interpreter does at its end, which a fork must not
            os._exit(code)
    os.close(write)
    os.read(read, 1)
    os.close(read)
    return child


def wait(child: int) -> int:
    """The exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def ended(scenario: Scenario) -> int:
    """The exit code of a run that nothing disturbs."""
    return wait(fork(scenario.run))


def interrupt_at(call: int, number: int) -> list[str]:
    """In a child: send itself a signal before its so-and-so-manieth call that touches the working directory.

    Returns:
        The calls so far, as they are made.
    """
    folder, seen = os.getcwd(), []

    def hook(event: str, arguments: tuple) -> None:
        if event not in CALLS or (isinstance(arguments[0], str) and not os.path.abspath(arguments[0]).startswith(
                folder)):
            return
        seen.append(event)
        if len(seen) == call + 1:
            os.killpg(0, number)

    sys.addaudithook(hook)
    return seen


@contextlib.contextmanager
def laid_out(scenario: Scenario) -> Iterator[None]:
    """A fresh working directory."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="interrupted-") as folder:
        os.chdir(os.path.realpath(folder))
        try:
            scenario.prepare()
            yield
        finally:
            os.chdir(before)


def contents() -> dict[str, bytes]:
    """Every file below the working directory."""
    return {os.path.relpath(os.path.join(folder, name)): Path(folder, name).read_bytes()
            for folder, _, names in os.walk(".") for name in names}


class Trial:
    """Interrupts one scenario time and again.

    Attributes:
        counts: what became of it.
    """

    def __init__(self, scenario: Scenario, rng: random.Random):
        self.scenario, self._rng = scenario, rng
        self.counts: collections.Counter[str] = collections.Counter()
        with laid_out(scenario):
            self._old = contents()
            begin = time.perf_counter()
            assert ended(scenario) == 0
            self._duration = time.perf_counter() - begin
            self._new = contents()
        with laid_out(scenario):
            self._calls = wait(fork(self._count_calls))

    def _count_calls(self) -> int:
        seen = interrupt_at(sys.maxsize, signal.SIGKILL)
        assert self.scenario.run() == 0
        assert 0 < len(seen) < 99  # this goes through an exit code
        return len(seen)

    def once(self, number: int, *, aimed: bool) -> None:
        """Interrupt a run with a signal, look what it left, and run again."""
        with laid_out(self.scenario):
            if aimed:
                call = self._rng.randrange(self._calls)
                child = fork(self.scenario.run, lambda: interrupt_at(call, number))
            else:
                child = fork(self.scenario.run)
                time.sleep(self._rng.uniform(0, self._duration))
                os.killpg(child, number)
            wait(child)
            if self.scenario.many:
                _wait_for_group(child)
            self._look(number)

    def _look(self, number: int) -> None:
        left = contents()
        strays = [name for name in left if TEMPORARY.fullmatch(os.path.basename(name))]
        unknown = left.keys() - self._old.keys() - self._new.keys() - set(strays)
        what = self._judge(left)
        self.counts[what] += 1
        self.counts["with temporary files"] += bool(strays)
        self.counts["unknown files"] += bool(unknown)
        self.counts["temporary files"] += len(strays)
        if number != signal.SIGKILL:
            self.counts["temporary files after a signal that can be handled"] += len(strays)
        for name in strays:
            os.utime(name, (time.time() - 2 * drafts.ABANDONED,) * 2)
        code, after = ended(self.scenario), contents()
        made = {name: after.get(name) for name in self.scenario.files}
        if code != 0 or made != {name: self._new[name] for name in self.scenario.files}:
            self.counts["next run failed"] += 1
        self.counts["temporary files after the next run"] += sum(
            bool(TEMPORARY.fullmatch(os.path.basename(name))) for name in after)

    def _judge(self, left: dict[str, bytes]) -> str:
        """old, new, between (some reports or models are new already), none, mixture."""
        states = []
        for name in self.scenario.files:
            now = left.get(name)
            known = {self._old.get(name): "old", self._new[name]: "new"}
            states.append(known.get(now, "none" if now is None else "mixture"))
        *rest, last = states
        if "mixture" in states or (last == "none" and not self.scenario.may_vanish):
            return "mixture"
        if last == "none":
            return "no model, its data being overwritten"
        if any(name in left and name.startswith("b/") for name in self.scenario.files):  # a model and its data
            own = last == "new" and set(rest) <= {"new"}
            before = last == "old" and (not self.scenario.may_vanish or set(rest) <= {"old"})
            return last if own or before else "mixture"
        return last if len(set(states)) == 1 else "between"


def _wait_for_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        for _ in range(1000):
            os.killpg(group, 0)
            time.sleep(0.01)


def count(times: int, number: int, seed: int, *, many_every: int = 10) -> dict[str, collections.Counter]:
    """Interrupt `times` runs, of all scenarios in turn; counts for each. Every `many_every`-th is of --out-dir."""
    rng = random.Random(seed)
    for scenario in SCENARIOS.values():  # here, for what is imported only when needed
        with laid_out(scenario):
            assert scenario.run() == 0
    trials = {name: Trial(scenario, rng) for name, scenario in SCENARIOS.items()}
    few = [trial for trial in trials.values() if not trial.scenario.many]
    (many,) = (trial for trial in trials.values() if trial.scenario.many)
    for index in range(times):
        trial = many if index % many_every == many_every - 1 else few[index % len(few)]
        trial.once(number, aimed=(index // len(few)) % 2 == 1)
    return {name: trial.counts for name, trial in trials.items()}


WRONG = ("mixture", "unknown files", "next run failed", "temporary files after the next run",
         "temporary files after a signal that can be handled")


def main() -> int:
    parser = argparse.ArgumentParser(description="Interrupt runs and count what they leave.")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--signal", choices=["SIGKILL", "SIGTERM", "SIGINT"], default="SIGKILL")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    total: collections.Counter[str] = collections.Counter()
    for name, counts in count(options.kills, signal.Signals[options.signal], options.seed).items():
        print(f"{name}: " + ", ".join(f"{what} {number}" for what, number in sorted(counts.items()) if number))
        total.update(counts)
    total.update(dict.fromkeys(WRONG, 0))
    for what, number in sorted(total.items()):
        print(f"{what}: {number}")
    wrong = sum(total[what] for what in WRONG)
    print(f"{options.kills} interrupted by {options.signal}, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
