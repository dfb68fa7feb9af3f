"""A child process that answers calls: what crashes in it, or takes too much memory, takes nothing else along.

The child makes one object and calls its methods as it is told over its standard input; what a library prints to its
standard output goes to standard error. It ignores Ctrl-C, which its parent handles, and ends when its parent does.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading

_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1])\n"
_LEAN = "import types; package = sys.modules['rewriter'] = types.ModuleType('rewriter'); package.__path__ = [{}]\n"
_SERVE = "from rewriter.workers import serve; serve(sys.argv[2])"
PATIENCE = 2.0  # seconds for the end of a child
LONGEST = 400  # characters of an error's line


class WorkerError(Exception):
    """A call failed. `str(error)` is one line.

    Attributes:
        kind: name of the exception's class in the child, "" if the child itself died.
    """

    def __init__(self, message: str, kind: str = ""):
        super().__init__(message)
        self.kind = kind


class Worker:
    """A child process with one object in it.

    Args:
        target: "module:Class"; the child calls Class().
        lean: do not import what the face of `rewriter` does: the child starts faster and takes less memory.

    Raises:
        WorkerError: from the first call on, if the class cannot be imported.
    """

    def __init__(self, target: str, *, lean: bool = False):
        start = _START + (_LEAN.format(repr(os.path.dirname(os.path.abspath(__file__)))) if lean else "") + _SERVE
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._late = False
        self._process = subprocess.Popen(
            [sys.executable, "-c", start, json.dumps(sys.path), target], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors)

    def call(self, method: str, *args, timeout: float | None = None, **keywords):
        """What `method` of the child's object returns. All of it must be picklable.

        Args:
            timeout: seconds after which the child is killed.

        Raises:
            WorkerError: the method raised, or the child died. A child that raised can be called again.
        """
        watch = threading.Timer(timeout, self._give_up) if timeout is not None else None
        try:
            pickle.dump((method, args, keywords), self._process.stdin, pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
            if watch is not None:
                watch.start()
            good, value, kind = pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            epitaph = self._epitaph()
            raise WorkerError(f"took longer than {timeout:.0f} s" if self._late else epitaph) from None
        finally:
            if watch is not None:
                watch.cancel()
        if not good:
            raise WorkerError(value, kind)
        return value

    @property
    def alive(self) -> bool:
        """Whether the child can be called."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the child; one that is at work may clean up what it began."""
        with contextlib.suppress(OSError):
            self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError, ValueError):
                stream.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def _give_up(self) -> None:
        self._late = True
        self._process.kill()

    def _epitaph(self) -> str:
        code = self._process.wait()
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"its process died of {signal.Signals(-code).name}{self._last_words()}"
        return f"its process ended with code {code}{self._last_words()}"

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        return f": {lines[-1].strip()[:LONGEST]}" if lines else ""


def serve(target: str) -> None:
    """The child's loop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    module, _, name = target.partition(":")
    made = failure = None
    try:
        made = getattr(importlib.import_module(module), name)()  # now, while the parent starts others
    except Exception as error:
        failure = (False, one_line(error), type(error).__name__)
    while True:
        try:
            method, args, keywords = pickle.load(calls)
        except EOFError:
            return
        try:
            answer = (True, getattr(made, method)(*args, **keywords), "")
        except Exception as error:
            answer = (False, one_line(error), type(error).__name__)
        pickle.dump(failure or answer, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


def one_line(error: BaseException) -> str:
    """What an exception says, on one line of bearable length."""
    return " ".join(str(error).split())[:LONGEST] or type(error).__name__
