"""Errors and tolerances, held against what numpy says."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from small_models import plain, stn

from rewriter.comparing import parity

REFERENCE = {"y": np.linspace(-1, 1, 12, dtype=np.float32).reshape(1, 1, 3, 4)}


def judged(values, *, exact=None, jumping=False, reference=REFERENCE, own=None):
    allowed = parity.tolerances(reference, [], jumping=jumping, exact=exact)
    (found,) = parity.compare_outputs(values, reference, allowed, exact, own)
    return found, allowed[0]


def test_numbers():
    off = np.zeros((1, 1, 3, 4), np.float32)
    off[0, 0, 0, 0], off[0, 0, 2, 3] = 3e-6, -2e-6
    values = REFERENCE["y"] + off
    found, tolerance = judged({"y": values})
    assert found.absolute == np.abs(values.astype(float) - REFERENCE["y"].astype(float)).max()
    assert found.relative == pytest.approx(found.absolute)  # where the reference is -1
    assert (found.exact, found.good) == (None, True)
    assert tolerance.allowed == pytest.approx(64 * 2 ** -23 * 2)


def test_a_mismatch():
    found, _ = judged({"y": REFERENCE["y"] + np.float32(1e-3)})
    assert not found.good and found.outliers == 1


def test_tolerance_grows_with_the_axis():
    reference = {"y": np.linspace(0, 1, 4 * 500, dtype=np.float32).reshape(1, 1, 4, 500)}
    (tolerance,) = parity.tolerances(reference, [], jumping=False, exact=None)
    assert tolerance.allowed == pytest.approx(4 * 500 * 2 ** -23)
    assert "500 pixels" in tolerance.why
    (tolerance,) = parity.tolerances(reference, [(1, 3, 1000, 2)], jumping=False, exact=None)
    assert "1000 pixels" in tolerance.why


def test_with_a_float64_run_it_is_the_judge():
    exact = {"y": REFERENCE["y"].astype(np.float64) + 1e-2}  # the unfused model is far off
    nearer, tolerance = judged({"y": REFERENCE["y"] + np.float32(1e-2)}, exact=exact)
    assert nearer.good and nearer.absolute > 5e-3 and nearer.exact < 1e-6
    assert tolerance.allowed == pytest.approx(2e-2, rel=1e-4)
    further, _ = judged({"y": REFERENCE["y"] - np.float32(1.1e-2)}, exact=exact)
    assert not further.good


def test_a_runtime_of_its_own():
    off = {"y": REFERENCE["y"] + np.float32(1e-3)}
    assert not judged(off)[0].good
    assert judged(off, own={"y": 1e-3})[0].good


def test_integers_are_exact():
    reference = {"y": np.array([1, 2, 3])}
    assert judged({"y": np.array([1, 2, 3])}, reference=reference)[0].good
    assert not judged({"y": np.array([1, 2, 4])}, reference=reference)[0].good


def test_jumps_are_counted():
    reference = {"y": np.zeros(10000, np.float32) + np.float32(0.5)}
    values = reference["y"].copy()
    values[:10] = 1
    assert judged({"y": values}, reference=reference, jumping=True)[0].good
    assert not judged({"y": values}, reference=reference)[0].good
    values[:11] = 1
    assert not judged({"y": values}, reference=reference, jumping=True)[0].good
    exact = {"y": reference["y"].astype(float)}
    exact["y"][:20] = 0  # the unfused model jumps too
    assert judged({"y": values}, reference=reference, jumping=True, exact=exact)[0].good


def test_not_a_number():
    nan, inf = np.nan, np.inf
    a, b = np.array([nan, inf, -inf, nan, inf, 1]), np.array([nan, inf, -inf, 1, 1, nan])
    assert parity.difference(a, b).tolist() == [0, 0, 0, inf, inf, inf]
    assert not judged({"y": np.full((1, 1, 3, 4), nan, np.float32)})[0].good


def test_shapes_that_differ():
    found, _ = judged({"y": np.zeros((1, 1, 4, 3), np.float32)})
    assert not found.good and found.absolute == np.inf
    assert not judged({})[0].good


def test_histogram():
    reference = {"a": np.zeros(4), "b": np.zeros(3)}
    values = {"a": np.array([0, 2e-5, 9e-5, np.nan]), "b": np.array([0, 0, 3e-3])}
    assert parity.histogram(values, reference) == [(None, 3), (-5, 2), (-4, 0), (-3, 1)]
    assert parity.histogram(reference, reference) == [(None, 7)]


def test_jumps():
    assert not parity.jumps(stn())
    assert parity.jumps(plain(("Relu", "Round")))
    model = stn()
    model.graph.node[-1].attribute[0].CopyFrom(helper.make_attribute("mode", "nearest"))
    assert parity.jumps(model)
