"""AffineGridSample and AffineGrid on the kernels against a float64 reference, beside torch's own float32."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from kernel_models import run_node

torch = pytest.importorskip("torch")
functional = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid behavior has changed")

TORCH_MODE = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}
PADDING = ("zeros", "border", "reflection")
CORNERS = tuple(itertools.product((0, 1), repeat=2))
FULL_HD = (1080, 1920)

TURN = [[math.cos(0.35), -math.sin(0.35), 0.1], [math.sin(0.35), math.cos(0.35), -0.05]]
ZOOM = [[0.31, 0.02, 0.2], [-0.03, 0.27, -0.3]]
SHRINK = [[2.9, -0.7, 0.4], [0.6, 3.3, -0.2]]
MOVE = [[1.0, 0.0, 0.3337], [0.0, 1.0, -0.2113]]


def sample(x, theta, size, mode="linear", padding="zeros", align_corners=0, grid_align_corners=0) -> np.ndarray:
    operands = {"x": x, "theta": theta, "size": np.array([*x.shape[:2], *size], np.int64)}
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": align_corners,
                  "grid_align_corners": grid_align_corners}
    return run_node("AffineGridSample", operands, attributes)


def torch_sample(x, theta, size, mode="linear", padding="zeros", align_corners=0, grid_align_corners=0,
                 dtype=torch.float64) -> np.ndarray:
    x, theta = torch.from_numpy(x).to(dtype), torch.from_numpy(theta).to(dtype)
    grid = functional.affine_grid(theta, [x.shape[0], 1, *size], align_corners=bool(grid_align_corners))
    y = functional.grid_sample(x, grid, mode=TORCH_MODE[mode], padding_mode=padding, align_corners=bool(align_corners))
    return y.double().numpy()


def noise(shape, dtype=np.float32) -> np.ndarray:
    """The image that shows an error of a coordinate best."""
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype(dtype)


def errors(case: dict) -> tuple[np.ndarray, np.ndarray]:
    """The kernel's and torch's float32, against float64."""
    exact = torch_sample(**case)
    return np.abs(sample(**case) - exact), np.abs(torch_sample(**case, dtype=torch.float32) - exact)


@pytest.mark.parametrize("theta", [TURN, ZOOM, SHRINK, MOVE], ids=["turn", "zoom", "shrink", "move"])
@pytest.mark.parametrize(("mode", "padding", "corners"), [
    ("linear", "zeros", (0, 0)), ("linear", "zeros", (1, 1)), ("linear", "border", (1, 0)),
    ("linear", "reflection", (0, 1)), ("cubic", "zeros", (0, 0)), ("cubic", "reflection", (1, 1))])
def test_a_tenth_of_torchs_error_at_1080p(theta, mode, padding, corners):
    ours, theirs = errors({
        "x": noise((1, 1, *FULL_HD)), "theta": np.array([theta], np.float32), "size": FULL_HD, "mode": mode,
        "padding": padding, "align_corners": corners[0], "grid_align_corners": corners[1]})
    assert ours.max() <= theirs.max() / 10
    assert ours.mean() <= theirs.mean() / 10


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("size", [(1, 1), (7, 5), (64, 64), (33, 257), (1, 1031), (1031, 1)])
def test_never_worse_than_torch(mode, size):
    rng = np.random.default_rng(size[1])
    for padding, corners, scale in itertools.product(PADDING, CORNERS, (0.05, 1.0, 8.0)):
        theta = (np.eye(2, 3) + scale * rng.standard_normal((2, 2, 3))).astype(np.float32)
        ours, theirs = errors({
            "x": noise((2, 3, 61, 83)), "theta": theta, "size": size, "mode": mode, "padding": padding,
            "align_corners": corners[0], "grid_align_corners": corners[1]})
        assert ours.max() <= max(theirs.max(), 1e-6)


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("theta", [TURN, ZOOM, SHRINK], ids=["turn", "zoom", "shrink"])
def test_nearest_takes_torchs_pixel_but_at_ties(theta, padding):
    height, width = 500, 700
    x = np.arange(1, height * width + 1, dtype=np.float32).reshape(1, 1, height, width)  # exact in float32
    theta = np.array([theta], np.float32)
    case = {"x": x, "theta": theta, "size": (height, width), "mode": "nearest", "padding": padding}
    other = (sample(**case) != torch_sample(**case))[0, 0]
    grid = functional.affine_grid(torch.from_numpy(theta).double(), [1, 1, height, width], align_corners=False)[0]
    pixels = grid.numpy() * (width / 2, height / 2) + ((width - 1) / 2, (height - 1) / 2)
    tie = (np.abs(pixels - np.floor(pixels) - 0.5) < 2e-5).any(axis=-1)
    assert not (other & ~tie).any()


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize(("shape", "size"), [
    ((2, 3, 9, 13), (11, 7)), ((1, 9, 1, 12), (5, 140)), ((1, 2, 12, 1), (1, 6)), ((2, 2, 4, 7, 5), (3, 8, 6)),
    ((1, 1, 1, 5, 4), (4, 1, 9)), ((1, 4, 16, 20), (128, 130))])
def test_every_convention(dtype, shape, size):
    axes = len(size)
    rng = np.random.default_rng(shape[2])
    x = noise(shape, np.dtype(dtype))
    allowed = {"float32": 2e-5, "float16": 2e-3, "float64": 1e-11}[dtype]
    for mode, padding, corners in itertools.product(TORCH_MODE, PADDING, CORNERS):
        if mode == "cubic" and axes == 3:
            continue
        theta = (np.eye(axes, axes + 1) + 0.3 * rng.standard_normal((shape[0], axes, axes + 1))).astype(np.dtype(dtype))
        conventions = {"align_corners": corners[0], "grid_align_corners": corners[1]}
        y = sample(x, theta, size, mode, padding, **conventions)
        exact = torch_sample(x, theta, size, mode, padding, **conventions)
        assert y.dtype == x.dtype
        assert np.abs(y - exact).max() <= allowed, (mode, padding, corners)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, 1e-40])
@pytest.mark.parametrize("mode", TORCH_MODE)
def test_any_theta_reads_x_alone(mode, value):
    """Each element of theta in turn: y is made of pixels of x, or is 0 outside; other samples are what they were."""
    x = np.ones((2, 3, 20, 30), np.float32)
    for i, j, padding in itertools.product(range(2), range(3), PADDING):
        theta = np.array([TURN, MOVE], np.float32)
        plain = sample(x, theta, (25, 140), mode, padding)
        theta[0, i, j] = value
        y = sample(x, theta, (25, 140), mode, padding)
        np.testing.assert_array_equal(y[1], plain[1])
        if padding == "zeros":
            assert (y[0] >= -0.5).all() and (y[0] <= 1.5).all()  # what the weights of cubic taps sum to at edges
        else:
            np.testing.assert_allclose(y[0], 1, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (37, 300), (2, 4100), (3, 4, 5), (1, 2, 1)])
def test_the_grid_alone(dtype, size):
    axes = len(size)
    rng = np.random.default_rng(axes)
    theta = rng.standard_normal((2, axes, axes + 1)).astype(np.dtype(dtype))
    for align_corners in (0, 1):
        operands = {"theta": theta, "size": np.array([2, 1, *size], np.int64)}
        grid = run_node("AffineGrid", operands, {"align_corners": align_corners})
        exact = functional.affine_grid(torch.from_numpy(theta).double(), [2, 1, *size],
                                       align_corners=bool(align_corners)).numpy()
        assert grid.dtype == theta.dtype
        magnitude = np.abs(theta.astype(np.float64)).sum(-1).max()
        assert np.abs(grid - exact).max() <= magnitude * np.finfo(np.dtype(dtype)).eps


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_coordinate_that_is_not_finite_leaves_the_others(value):
    size = np.array([2, 1, 12, 40], np.int64)
    for i, j in itertools.product(range(2), range(3)):
        theta = np.array([TURN, MOVE], np.float32)
        plain = run_node("AffineGrid", {"theta": theta, "size": size})
        theta[0, i, j] = value
        grid = run_node("AffineGrid", {"theta": theta, "size": size})
        assert not np.isfinite(grid[0, ..., i]).any()
        np.testing.assert_array_equal(grid[0, ..., 1 - i], plain[0, ..., 1 - i])
        np.testing.assert_array_equal(grid[1], plain[1])
