"""Many sessions, many threads: registered, run and dropped in any order."""

from __future__ import annotations

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from kernel_models import kernel_session, node_model

import rewriter

RNG = np.random.default_rng(11)


def sampler(batch, side):
    theta = np.eye(2, 3) + RNG.uniform(-0.5, 0.5, (batch, 2, 3))
    return {"x": RNG.standard_normal((batch, 3, side, side + 3)).astype(np.float32), "theta": theta.astype(np.float32),
            "size": np.array((1, 1, side + 1, side))}


OPEN = {"x": ("n", 3, None, None), "theta": ("n", 2, 3)}


def test_concurrent_runs_of_one_session():
    feeds = [sampler(batch, side) for batch in (1, 2, 3) for side in (5, 28, 160)]
    session = kernel_session(node_model("AffineGridSample", feeds[0], shapes=OPEN))
    want = [session.run(None, feed)[0] for feed in feeds]
    turns = kernel_session(node_model("Rot90", {"x": feeds[0]["x"]}, {"k": 3, "axes": (1, 3)}, shapes=OPEN))
    barrier = threading.Barrier(8)

    def work(seed):
        barrier.wait()
        for index in np.random.default_rng(seed).integers(0, len(feeds), 60):
            np.testing.assert_array_equal(session.run(None, feeds[index])[0], want[index])
            x = feeds[index]["x"]
            np.testing.assert_array_equal(turns.run(None, {"x": x})[0], np.rot90(x, 3, (1, 3)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_do_not_depend_on_threads(threads):
    for feed in (sampler(3, 160), sampler(1, 321)):
        model = node_model("AffineGridSample", feed, {"padding_mode": "reflection"})
        one, many = (kernel_session(model, threads=count).run(None, feed)[0] for count in (1, threads))
        np.testing.assert_array_equal(one, many)


def test_sessions_come_and_go():
    x = RNG.standard_normal((2, 9, 10)).astype(np.float32)
    model = node_model("Rot90", {"x": x}, {"axes": (1, 2)})
    kept = []
    for index in range(200):
        session = kernel_session(model, threads=1)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.rot90(x, 1, (1, 2)))
        if index % 10 == 0:
            kept.append(session)
            kept = kept[-7:]
    del session
    for session in kept:
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.rot90(x, 1, (1, 2)))


def test_sessions_are_made_from_many_threads():
    x = RNG.standard_normal((2, 9, 10)).astype(np.float32)
    model = node_model("CustomRotScale", {"x": x}, {"scale_factor": 2.0})

    def work(_):
        for _ in range(10):
            np.testing.assert_array_equal(kernel_session(model, threads=1).run(None, {"x": x})[0],
                                          np.rot90(x, 1, (1, 2)) * 2)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


def test_one_options_object_serves_several_sessions():
    options = rewriter.session_options()
    x = np.ones((2, 3), np.float32)
    sessions = [ort.InferenceSession(node_model("Rot90", {"x": x}, {"k": k}), options) for k in (1, 2, 3)]
    del options
    gc.collect()
    assert [s.run(None, {"x": x})[0].shape for s in sessions] == [(3, 2), (2, 3), (3, 2)]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_registering_leaks_nothing():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    model = node_model("Rot90", {"x": np.ones((2, 3), np.float32)})
    for count in (50, 300):
        before = resident()
        for _ in range(count):
            kernel_session(model, threads=1)
        gc.collect()
    assert resident() - before < 300 * 8192
