"""AffineGrid and AffineGridSample on the kernels against the references of their contracts."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from kernel_models import run_node
from onnx import TensorProto

from patterns.operators.affine_grid_sample import affine_grid, affine_grid_sample

MODES, PADDINGS = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")
ALIASES = {"linear": "bilinear", "cubic": "bicubic"}
DTYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
EPS = {name: float(ml_dtypes.finfo(dtype).eps) for name, dtype in DTYPES.items()}


def theta_of(axes, batch, *, seed=0):
    """Transforms whose coordinates avoid ties."""
    rng = np.random.default_rng(seed)
    return 1.2 * np.eye(axes, axes + 1) + rng.uniform(-0.5, 0.5, (batch, axes, axes + 1))


def feed(dtype, **arrays):
    """Operands rounded to the dtype, and what to feed: float32 where onnxruntime's Python does not take the dtype."""
    rounded = {name: a if a.dtype == np.int64 else a.astype(DTYPES[dtype]) for name, a in arrays.items()}
    wide = {name: a.astype(np.float32) if a.dtype == ml_dtypes.bfloat16 else a for name, a in rounded.items()}
    exact = {name: a if a.dtype == np.int64 else a.astype(np.float64) for name, a in rounded.items()}
    return exact, wide, {"narrow": TensorProto.BFLOAT16} if dtype == "bfloat16" else {}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("align_corners", [0, 1])
def test_affine_grid(dtype, align_corners):
    for batch, size in ((1, (1, 3, 5, 7)), (3, (1, 1, 4, 33)), (1, (2, 1, 1, 6)), (2, (2, 0, 1, 1)), (0, (1, 1, 2, 3)),
                        (1, (0, 1, 2, 3)), (2, (1, 1, 3, 4, 5)), (1, (2, 1, 2, 1, 9))):
        exact, wide, options = feed(dtype, theta=theta_of(len(size) - 2, batch), size=np.array(size))
        want = affine_grid(exact["theta"], exact["size"], align_corners=align_corners)
        got = run_node("AffineGrid", wide, {"align_corners": align_corners}, **options)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=0, atol=4 * EPS[dtype], err_msg=str(size))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("mode", "padding_mode"), list(itertools.product(MODES, PADDINGS)))
def test_affine_grid_sample(dtype, mode, padding_mode):
    rng = np.random.default_rng(7)
    for axes, a, b in itertools.product((2, 3), (0, 1), (0, 1)):
        if axes == 3 and mode == "cubic":
            continue
        x = rng.standard_normal((2, 3, *(6, 5, 4)[:axes]))
        exact, wide, options = feed(dtype, x=x, theta=theta_of(axes, 2), size=np.array((1, 1, *(7, 37, 5)[:axes])))
        attributes = {"mode": mode, "padding_mode": padding_mode, "align_corners": a, "grid_align_corners": b}
        want = affine_grid_sample(**exact, **attributes)
        tolerance = 8 * EPS[dtype] * max(1, np.abs(want).max()) + (2e-6 if dtype != "float64" else 1e-13)
        got = run_node("AffineGridSample", wide, attributes, **options)
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance, err_msg=str(attributes))
        if mode in ALIASES:
            again = run_node("AffineGridSample", wide, attributes | {"mode": ALIASES[mode]}, **options)
            np.testing.assert_array_equal(again, got)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_a_float32_theta(dtype):
    rng = np.random.default_rng(8)
    exact, wide, options = feed(dtype, x=rng.standard_normal((2, 3, 6, 5)), size=np.array((1, 1, 7, 9)))
    theta = theta_of(2, 2).astype(np.float32)
    if options:
        options["wide"] = ("theta",)
    operands = {"x": wide["x"], "theta": theta, "size": wide["size"]}
    got = run_node("AffineGridSample", operands, {"align_corners": 1}, **options)
    want = affine_grid_sample(exact["x"], theta.astype(np.float64), exact["size"], mode="linear", padding_mode="zeros",
                              align_corners=1, grid_align_corners=0)
    np.testing.assert_allclose(got, want, rtol=0, atol=8 * EPS[dtype] + (1e-5 if dtype != "float64" else 1e-12))


@pytest.mark.parametrize(("batch", "theta_batch", "size0", "channels"), [
    (3, 3, 1, 2), (3, 1, 3, 2), (3, 3, 3, 2), (1, 1, 1, 1), (0, 0, 1, 2), (0, 1, 0, 2), (2, 1, 2, 0)])
def test_batch_rule_and_empty_images(batch, theta_batch, size0, channels):
    rng = np.random.default_rng(9)
    operands = {"x": rng.standard_normal((batch, channels, 5, 6)).astype(np.float32),
                "theta": theta_of(2, theta_batch).astype(np.float32), "size": np.array((size0, 9, 4, 7))}
    want = affine_grid_sample(**operands, mode="linear", padding_mode="zeros", align_corners=0, grid_align_corners=0)
    got = run_node("AffineGridSample", operands)
    assert got.shape == want.shape == (batch, channels, 4, 7)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding_mode", PADDINGS)
def test_axes_of_length_1(mode, padding_mode):
    for spatial, source, a, b in itertools.product(((1, 9), (5, 1), (1, 1)), ((1, 1), (6, 1), (1, 5)), (0, 1), (0, 1)):
        operands = {"x": np.random.default_rng(1).standard_normal((1, 2, *source)).astype(np.float32),
                    "theta": theta_of(2, 1, seed=4).astype(np.float32), "size": np.array((1, 1, *spatial))}
        attributes = {"mode": mode, "padding_mode": padding_mode, "align_corners": a, "grid_align_corners": b}
        np.testing.assert_allclose(run_node("AffineGridSample", operands, attributes),
                                   affine_grid_sample(**operands, **attributes), rtol=0, atol=1e-5,
                                   err_msg=f"{spatial} {source} {attributes}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding_mode", PADDINGS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_any_theta_reads_inside_and_touches_nothing_else(mode, padding_mode, dtype):
    """The second sample's theta is hostile; the first's pixels stay what they are."""
    big = np.finfo(DTYPES[dtype]).max
    tiny = np.finfo(DTYPES[dtype]).smallest_subnormal
    x = np.random.default_rng(2).standard_normal((2, 3, 9, 33)).astype(DTYPES[dtype])
    attributes = {"mode": mode, "padding_mode": padding_mode}
    theta = np.stack([np.eye(2, 3)] * 2).astype(DTYPES[dtype])
    size = np.array((1, 1, 8, 35))
    calm = run_node("AffineGridSample", {"x": x, "theta": theta, "size": size}, attributes)
    for value in (np.nan, np.inf, -np.inf, big, -big, tiny, 0.0):
        for position in ((0, 0), (0, 2), (1, 1), (slice(None), slice(None))):
            hostile = theta.copy()
            hostile[1][position] = value
            got = run_node("AffineGridSample", {"x": x, "theta": hostile, "size": size}, attributes)
            np.testing.assert_array_equal(got[0], calm[0])
            if np.isfinite(value):
                assert np.isfinite(got).all()
