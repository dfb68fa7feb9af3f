"""What recognition costs: work linear in the number of grids, memory of a few grids, none for hostile shapes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest
from cost_models import calls, many_grids
from onnx import parser
from trap_models import Warp, base_grid

import rewriter

HEAD = '<ir_version: 9, opset_import: ["" : 18]>\n'


def peak(model: onnx.ModelProto):
    """(report, bytes allocated at once while fusing)."""
    rewriter.fuse(parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = Neg(x) }"))  # imports
    tracemalloc.start()
    try:
        _, report = rewriter.fuse(model)
        return report, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_the_work_is_linear_in_the_number_of_grids(dynamic):
    counts = 10, 40
    calls(many_grids(2, dynamic=dynamic))  # imports, caches
    (few, called), (many, more) = (calls(many_grids(n, dynamic=dynamic)) for n in counts)
    assert [few.count("AffineGridSample"), many.count("AffineGridSample")] == list(counts)
    assert more <= 4.2 * called


@pytest.mark.parametrize("edited", [False, True], ids=["a grid", "an impostor"])
def test_a_proof_takes_a_few_times_the_grid(edited):
    size = 1080, 1920
    base = base_grid(size).astype(np.float32)
    if edited:
        base[-1, -1, 0] += 1e-3
    warp = Warp(batch=1)
    model = warp.sample(warp.grid(base, size=size)).model()
    grid = 8 * 2 * size[0] * size[1]  # in float64, as it is evaluated
    report, most = peak(model)
    assert bool(report.fused) != edited
    own = model.ByteSize()
    assert most - 2 * own <= 6 * grid, f"{(most - 2 * own) / grid:.1f} grids"


HOSTILE = {
    "range": "i = Range(zero, huge, one) f = Cast<to = 1>(i) b = Reshape(f, three) g = MatMul(b, t) y = Reshape(g, s)",
    "expand": "b = Expand(unit, shape) g = MatMul(b, t) y = Reshape(g, s)",
    "constant of shape": "b = ConstantOfShape(shape) g = MatMul(b, t) y = Reshape(g, s)",
    "tile": "u = Reshape(unit, threes) b = Tile(u, shape) g = MatMul(b, t) y = Reshape(g, s)",
    "a product": "c = Expand(unit, tall) d = Expand(unit, flat) b = MatMul(c, d) g = Mul(b, few) y = Reshape(g, s)",
}


@pytest.mark.parametrize("sampled", [False, True], ids=["grid", "sampler"])
@pytest.mark.parametrize("which", HOSTILE)
def test_hostile_shapes_allocate_nothing(which, sampled):
    """2^40 elements each."""
    rest = "z = GridSample(x, y)" if sampled else "z = Identity(y)"
    model = parser.parse_model(HEAD + f"""
        g (float[1, 2, 3] theta, float[1, 1, 1, 1] few, float[1, 1, 8, 8] x) => (float[a, b, c, d] z)
        <int64 zero = {{0}}, int64 huge = {{1099511627776}}, int64 one = {{1}}, float unit = {{1}},
         int64[3] three = {{1, -1, 3}}, int64[3] shape = {{1, 1099511627776, 3}}, int64[3] threes = {{1, 1, 1}},
         int64[4] s = {{1, 1048576, 1048576, 2}}, int64[2] tall = {{1048576, 1048576}},
         int64[2] flat = {{1048576, 1048576}}>
        {{ t = Transpose<perm = [0, 2, 1]>(theta) {HOSTILE[which]} {rest} }}""")
    report, most = peak(model)
    assert not report.fused and most < 64 << 20


@pytest.mark.parametrize("shape", ["1, 2147483648, 2147483648, 2", "1, 2147483648, 3"])
def test_hostile_declared_shapes(shape):
    """An input of 2^31 by 2^31 pixels, which feeds a sampler or is multiplied with theta."""
    if shape.endswith("2"):
        body, dims = "g = Mul(base, scale) y = GridSample(x, g)", "float[1, 1, 1, 1] scale"
    else:
        body, dims = ("t = Transpose<perm = [0, 2, 1]>(theta) f = MatMul(base, t) g = Reshape(f, s) "
                      "y = GridSample(x, g)"), "float[1, 2, 3] theta"
    model = parser.parse_model(HEAD + f"""g (float[{shape}] base, {dims}, float[1, 1, 8, 8] x) => (float[a, b, c, d] y)
        <int64[4] s = {{1, 65536, 32768, 2}}> {{ {body} }}""")
    report, most = peak(model)
    assert not report.fused and most < 64 << 20
    assert report.missed and report.missed[0].tensor
