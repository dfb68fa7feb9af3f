"""Rot90 and CustomRotScale on the kernels against numpy, through every way that a turn can take: bit for bit."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_models import kernel_session, node_model, run_node
from onnx import TensorProto

KINDS = ("uint8", "float16", "float32", "int64")  # one of each size
FLOATS = ("float16", "float32", "float64")


@functools.cache
def session(op_type: str, dtype: str, rank: int, attributes: tuple):
    x = np.zeros((1,) * rank, dtype)
    return kernel_session(node_model(op_type, {"x": x}, dict(attributes), shapes={"x": (None,) * rank}))


def turn(x: np.ndarray, k: int, axes: tuple[int, int]) -> np.ndarray:
    (y,) = session("Rot90", x.dtype.name, x.ndim, (("k", k), ("axes", axes))).run(None, {"x": x})
    return y


def scaled_turn(x: np.ndarray, k: int, scale: float) -> np.ndarray:
    attributes = (("rotations", k), ("scale_factor", scale))
    (y,) = session("CustomRotScale", x.dtype.name, x.ndim, attributes).run(None, {"x": x})
    return y


def bits(shape, dtype, seed: int = 0) -> np.ndarray:
    """Random ones: among floats every kind of NaN."""
    dtype = np.dtype(dtype)
    data = np.random.default_rng(seed).bytes(int(np.prod(shape)) * dtype.itemsize)
    return np.frombuffer(data, dtype).reshape(shape)


def numbers(shape, dtype, seed: int = 0) -> np.ndarray:
    """Random ones of all sizes, a few of them NaN, infinite, or too small to be normal."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 15, shape)
    x.reshape(-1)[rng.integers(0, x.size, 5)] = np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).smallest_subnormal
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def assert_turned(x: np.ndarray, axes: tuple[int, int]) -> None:
    for k in (1, 2, 3):
        want = np.rot90(x, k, axes)
        got = turn(x, k, axes)
        assert got.shape == want.shape and got.tobytes() == want.tobytes(), (x.dtype, x.shape, axes, k)


@pytest.mark.parametrize("dtype", KINDS)
def test_sizes_around_those_of_tiles(dtype):
    side = 64 // np.dtype(dtype).itemsize
    sizes = (side // 2 + 1, side - 1, side, side + 1, 2 * side, 5 * side + 3)
    for height in sizes:
        for width in sizes:
            assert_turned(bits((2, height, width), dtype), (1, 2))


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("channels", [2, 3, 4, 5, 6, 7, 8, 12, 16, 33])
def test_channels_stay_together(dtype, channels):
    for height, width in ((1, 9), (2, 3), (5, 4), (37, 29), (12, 130)):
        assert_turned(bits((height, width, channels), dtype), (0, 1))


@pytest.mark.parametrize(("dtype", "shape", "axes"), [
    ("float32", (2, 1080, 1920), (1, 2)), ("uint8", (3, 1000, 999), (1, 2)), ("uint8", (720, 1280, 3), (0, 1)),
    ("float32", (40, 96, 128), (0, 2)), ("float32", (2, 40, 1, 96, 50), (1, 3)), ("int64", (300, 80, 5), (0, 1)),
    ("float32", (70_001, 3), (0, 1)), ("float32", (3, 70_001), (0, 1)), ("float16", (1, 1_000_003), (0, 1)),
    ("uint8", (7, 5, 300_000), (0, 1)), ("float32", (500, 24, 24), (1, 2)),
], ids=str)
def test_turns_that_are_cut_into_tasks(dtype, shape, axes):
    assert_turned(bits(shape, dtype), axes)


@pytest.mark.parametrize("dtype", KINDS)
def test_outputs_larger_than_caches(dtype):
    width = 2048
    assert_turned(bits((1, (36 << 20) // width // np.dtype(dtype).itemsize // 64 * 64, width), dtype), (1, 2))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_shape_and_plane(data):
    rank = data.draw(st.integers(2, 5))
    shape = data.draw(st.lists(st.sampled_from((0, 1, 1, 2, 3, 5, 8, 17, 40)), min_size=rank, max_size=rank))
    axes = data.draw(st.permutations(range(rank)))[:2]
    assert_turned(bits(shape, data.draw(st.sampled_from(KINDS))), tuple(axes))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(2, 3, 70, 131), (3, 400, 500), (2, 1, 50)], ids=str)
def test_products_are_rounded_once(dtype, shape):
    x = numbers(shape, dtype)
    for scale in (0.1, -3.0, 1e30, float("inf")):
        scale = float(np.float32(scale))
        with np.errstate(all="ignore"):
            want = x * np.asarray(scale).astype(dtype)
        for k in (0, 1, 2, 3):
            np.testing.assert_array_equal(scaled_turn(x, k, scale), np.rot90(want, k, (-2, -1)), strict=True)


def test_products_of_bfloat16():
    x = numbers((2, 70, 131), "float32").astype(ml_dtypes.bfloat16)
    scale = float(np.float32(0.1))
    for k in (0, 1, 2, 3):
        got = run_node("CustomRotScale", {"x": x.astype(np.float32)}, {"rotations": k, "scale_factor": scale},
                       narrow=TensorProto.BFLOAT16)
        want = (x * np.asarray(scale).astype(ml_dtypes.bfloat16)).astype(np.float32)
        np.testing.assert_array_equal(got, np.rot90(want, k, (-2, -1)))


def test_scaled_channels():
    x = numbers((37, 29, 3), "float32")
    attributes = {"rotations": 1, "scale_factor": 0.5, "dims": "0,1"}
    np.testing.assert_array_equal(run_node("CustomRotScale", {"x": x}, attributes), np.rot90(x * np.float32(0.5)))


def outcome() -> str:
    """What this process makes of many turns; which vector path it takes is settled once for a process."""
    result = hashlib.sha256()
    for shape in ((2, 70, 131), (3, 200, 260), (19, 23), (65, 1), (1, 77)):
        for dtype in KINDS:
            result.update(b"".join(turn(bits(shape, dtype), k, (-2, -1)).tobytes() for k in (1, 2, 3)))
        for dtype in FLOATS:
            result.update(b"".join(scaled_turn(bits(shape, dtype), k, 0.3).tobytes() for k in (0, 1, 2, 3)))
    return result.hexdigest()


@pytest.mark.parametrize("path", ["scalar", "avx2"])
def test_every_vector_path_gives_the_same_bits(path):
    tests = str(Path(__file__).parents[1])
    environment = {**os.environ, "WARPFUSE_VECTOR_PATH": path,
                   "PYTHONPATH": os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))}
    run = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == outcome()


if __name__ == "__main__":
    print(outcome())  # noqa: T201
