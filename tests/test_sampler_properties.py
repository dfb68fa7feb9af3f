"""Random samplers of random grids: fused equals unfused, twice equals once.

`properties.py` sets the number of examples.
"""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from properties import EXAMPLES

import rewriter

RNG = np.random.default_rng(11)


def base_grid(size, corners):
    axes = [(2 * np.arange(n) + 1 - n) / max(n - corners, 1) for n in size]
    return np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(size)], axis=-1)


def smooth_image(batch, channels, extents):
    """Low waves: no pixel is steep enough to amplify the rounding of a coordinate."""
    grids = np.meshgrid(*(np.arange(n) / 8 for n in extents), indexing="ij")
    waves = RNG.uniform(-1, 1, (batch, channels, len(extents) + 1, *(1,) * len(extents)))
    return np.sin(sum(w * g for w, g in zip(np.moveaxis(waves, 2, 0), [*grids, 1.0])))


@st.composite
def warps(draw):
    rank = draw(st.sampled_from([2, 2, 2, 3]))
    dtype = draw(st.sampled_from([np.float32, np.float32, np.float16, np.float64]))
    opset = draw(st.integers(20 if rank == 3 or dtype == np.float64 else 16, 22))
    size = draw(st.lists(st.integers(2, 12), min_size=rank, max_size=rank))
    extents = draw(st.lists(st.integers(1, 12), min_size=rank, max_size=rank))
    batch, corners = draw(st.integers(1, 3)), draw(st.booleans())
    mode = draw(st.sampled_from(["linear", "nearest"] + ["cubic"] * (rank == 2)))
    spelled = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode) if opset < 20 else mode
    attributes = {"mode": spelled, "padding_mode": draw(st.sampled_from(["zeros", "border", "reflection"])),
                  "align_corners": draw(st.integers(0, 1))}
    dynamic = draw(st.booleans())
    base = base_grid(size, corners).reshape(1, -1, rank + 1)
    nodes = [helper.make_node("Transpose", ["theta"], ["t"], perm=[0, 2, 1]),
             helper.make_node("MatMul", ["base", "t"], ["flat"]),
             helper.make_node("Reshape", ["flat", "shape"], ["grid"]),
             helper.make_node("GridSample", ["x", "grid"], ["y"], **attributes)]
    elem, n = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), "N" if dynamic else batch
    graph = helper.make_graph(
        nodes, "warp", [helper.make_tensor_value_info("x", elem, [n, 2, *extents]),
                        helper.make_tensor_value_info("theta", elem, [n, rank, rank + 1])],
        [helper.make_tensor_value_info("y", elem, [n, 2, *size])],
        [numpy_helper.from_array(base.astype(dtype), "base"),
         numpy_helper.from_array(np.array([-1, *size, rank]), "shape")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    theta = np.eye(rank, rank + 1) + 0.4 * RNG.normal(size=(batch, rank, rank + 1))
    return model, {"x": smooth_image(batch, 2, extents).astype(dtype), "theta": theta.astype(dtype)}, mode


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=warps())
def test_samplers_fuse_and_agree(case, run, custom, tally):
    model, feeds, mode = case
    fused, report = rewriter.fuse(model)
    tally[f"{'fused' if report.fused else 'declined'}"] += 1
    assert custom(fused) == {"AffineGridSample": 1}, [m.reason for m in report.missed]
    onnx.checker.check_model(fused, full_check=True)
    before, after = run(model, feeds)["y"], run(fused, feeds)["y"]
    assert before.dtype == after.dtype and before.shape == after.shape
    off = np.abs(before.astype(np.float64) - after)
    if mode == "nearest":  # coordinates within rounding of a tie may go either way
        assert np.mean(off > 1e-2) <= 0.1
    else:
        assert off.max() <= {np.float16: 3e-2, np.float32: 2e-5, np.float64: 1e-12}[before.dtype.type]
    again, _ = rewriter.fuse(fused)
    assert again.SerializeToString(deterministic=True) == fused.SerializeToString(deterministic=True)
