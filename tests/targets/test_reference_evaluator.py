"""onnx's ReferenceEvaluator runs fused files and stock files, but for what it cannot: cubic with border, and any mode
but nearest before opset 20, which it refuses by name in an unfused model too."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import rewriter
from patterns.operators import OPERATORS


def forms(model):
    return {"functions": model, "stock": rewriter.inline(model)[0],
            "openvino": rewriter.fuse(model, patterns=(), target="openvino")[0]}


@pytest.mark.parametrize("form", ["functions", "stock", "openvino"])
def test_samplers_and_grids(assemble, calls, form):
    uses = [calls.sampler(*use) for use in calls.SAMPLERS if use[:2] != ("cubic", "border")]
    uses += [calls.grid(corners, spatial=spatial, dtype=dtype) for corners in (0, 1)
             for spatial in ((4, 6), (3, 4, 5), (1, 4)) for dtype in (np.float32, np.float64)]
    for use in uses:
        model, feeds = assemble([use])
        (got,) = ReferenceEvaluator(forms(model)[form]).run(None, feeds)
        np.testing.assert_allclose(got, calls.by_torch(use), rtol=0, atol=1e-5, err_msg=str(use[2]))


@pytest.mark.parametrize("form", ["functions", "stock", "openvino"])
@pytest.mark.parametrize("opset", [11, 18, 20])
def test_turns(assemble, form, opset):
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float16)
    for k in (1, 2, 3):
        for call in (("Rot90", {"x": x}, {"k": k, "axes": (3, 1)}),
                     ("CustomRotScale", {"x": x}, {"rotations": k, "scale_factor": 0.1, "dims": "height,width"})):
            model, feeds = assemble([call], opset)
            (got,) = ReferenceEvaluator(forms(model)[form]).run(None, feeds)
            np.testing.assert_array_equal(got, OPERATORS[call[0]].reference(x, **call[2]))


@pytest.mark.parametrize("form", ["functions", "stock", "openvino"])
def test_sizes_at_run_time(assemble, calls, form):
    for use in (calls.grid(1), calls.grid(spatial=(3, 4, 5), batch=1, size0=2),
                calls.sampler("nearest", "zeros", 1, 0)):
        model, feeds = assemble([use], dynamic=True)
        (got,) = ReferenceEvaluator(forms(model)[form]).run(None, feeds)
        np.testing.assert_allclose(got, calls.by_torch(use), rtol=0, atol=1e-5)


def test_what_it_refuses(assemble, calls):
    """So that the sentence above is dropped once it no longer does."""
    model, feeds = assemble([calls.sampler("bilinear")], 18)
    with pytest.raises(Exception, match="only supports nearest, linear, and cubic modes"):
        ReferenceEvaluator(rewriter.inline(model)[0]).run(None, feeds)


def test_samplers_of_both_align_corners_must_be_inlined_first(assemble, calls):
    """It takes an align_corners of 0 that a function passes on for 1; once it does not, the page need not say so."""
    uses = [calls.sampler("nearest"), calls.sampler("linear", "reflection", 1, 0)]
    model, feeds = assemble(uses)
    fused = ReferenceEvaluator(model).run(None, feeds)
    inlined = ReferenceEvaluator(rewriter.inline(model)[0]).run(None, feeds)
    assert np.abs(fused[0] - calls.by_torch(uses[0])).max() > 0.1
    for got, use in zip(inlined, uses, strict=True):
        np.testing.assert_allclose(got, calls.by_torch(use), rtol=0, atol=1e-5)
