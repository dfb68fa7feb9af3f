"""Runs the command line in a process with limits: hostile models must end it neither by memory nor by time."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import sys
import traceback
from pathlib import Path

import patterns  # noqa: F401 (imported before the fork, so that a run costs its own work alone)
from rewriter import cli, engine, timing  # noqa: F401
from rewriter.evaluator import budget

ADDRESSES = 16 << 30  # bytes of address space; what the parent has mapped counts, and libraries reserve much
SECONDS = 300  # of processor time: far beyond what anything here takes, so that a hang ends
PEAK = 5 << 30  # bytes that a run may ever hold: what evaluators keep, and what numpy needs for one operator besides


@dataclasses.dataclass(frozen=True)
class Ended:
    """A run that has ended.

    Attributes:
        code: the exit code; negative for a signal.
        out, err: what was printed.
        peak: the most memory that it held, beyond what it had at the start, in bytes.
        seconds: of processor time.
    """

    code: int
    out: str
    err: str
    peak: int
    seconds: float


def run(*arguments: str | os.PathLike, folder: Path, scratch: Path, work: int = budget.MOST_WORK) -> Ended:
    """Run the command line in `folder`; what it prints goes through files in `scratch`.

    Args:
        work: the most that it may spend on proofs. Less than it really has shows the same in less time.
    """
    before = _resident()
    process = os.fork()
    if process == 0:
        budget.MOST_WORK = work
        _child(list(map(os.fspath, arguments)), folder, scratch)
    _, status, usage = os.wait4(process, 0)
    out, err = ((scratch / name).read_text(errors="strict") for name in ("out", "err"))
    return Ended(os.waitstatus_to_exitcode(status), out, err, (usage.ru_maxrss << 10) - before,
                 usage.ru_utime + usage.ru_stime)


def _child(arguments: list[str], folder: Path, scratch: Path) -> None:
    """Never returns: nothing of the test runner may run in this process."""
    code = 99
    try:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(scratch / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))  # not pytest's
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = cli.main(arguments)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
