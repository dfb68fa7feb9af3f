"""A child that answers, raises, dies, or takes too long."""

from __future__ import annotations

import os
import sys
import time

import numpy as np
import pytest

from rewriter.workers import Worker, WorkerError


class Odd:
    """What the tests put into a child."""

    def __init__(self):
        self.count = 0

    def add(self, array, *, more=0):
        self.count += 1
        os.write(1, b"noise on standard output")
        return array + more, self.count

    def fail(self):
        raise ValueError("line one\nline two")

    def die(self):
        os.write(2, b"last words\n")
        os.abort()

    def leave(self):
        os._exit(3)

    def sleep(self):
        time.sleep(60)

    def lean(self):
        return "rewriter.fusing" not in sys.modules


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.syspath_prepend(os.path.dirname(__file__))
    with Worker("test_workers:Odd") as made:
        yield made


def test_answers(worker):
    array, count = worker.call("add", np.arange(3), more=2)
    assert array.tolist() == [2, 3, 4] and count == 1
    assert worker.call("add", np.arange(1))[1] == 2


def test_raises_and_goes_on(worker):
    with pytest.raises(WorkerError) as caught:
        worker.call("fail")
    assert (str(caught.value), caught.value.kind) == ("line one line two", "ValueError")
    assert worker.alive
    assert worker.call("add", 1)[1] == 1


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_dies(worker):
    with pytest.raises(WorkerError, match="its process died of SIGABRT: last words") as caught:
        worker.call("die")
    assert caught.value.kind == "" and not worker.alive
    with pytest.raises(WorkerError):
        worker.call("add", 1)


def test_leaves(worker):
    with pytest.raises(WorkerError, match="ended with code 3"):
        worker.call("leave")


def test_takes_too_long(worker):
    worker.call("add", 1)
    with pytest.raises(WorkerError, match="took longer than 0 s"):
        worker.call("sleep", timeout=0.2)
    assert not worker.alive


def test_what_cannot_be_imported():
    with Worker("no_such_module:Odd") as made, pytest.raises(WorkerError, match="no_such_module"):
        made.call("add")


def test_lean(monkeypatch):
    monkeypatch.syspath_prepend(os.path.dirname(__file__))
    with Worker("test_workers:Odd", lean=True) as made:
        assert made.call("lean")
