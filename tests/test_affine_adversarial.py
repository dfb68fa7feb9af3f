"""Models built to be fused wrongly: flags and steps in the size arithmetic, batches that part, NaN, names of ours."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import rewriter

HEAD = '<ir_version: 9, opset_import: ["" : 18, "my" : 1]>\n'
LINE = """
    {n}i = Range(zero, {n}, one) {n}f = Cast<to = 1>({n}i) {n}c = Cast<to = 1>({n})
    {n}t = Mul({n}f, two) {n}o = Add({n}t, unit) {n}q = Div({n}o, {n}c) {n}x = Sub({n}q, unit)"""
CONSTANTS = """zero = Constant<value_int = 0>() one = Constant<value_int = 1>() two = Constant<value_float = 2.0>()
    unit = Constant<value_float = 1.0>() v0 = Constant<value_ints = [0]>() v1 = Constant<value_ints = [1]>()
    v2 = Constant<value_ints = [2]>() v3 = Constant<value_ints = [3]>() v12 = Constant<value_ints = [1, 2]>()
    back = Constant<value_ints = [-1]>() last = Constant<value_ints = [2]>()"""
SIZES = """shape = Shape(x) h1 = Gather(shape, v2) w1 = Gather(shape, v3) h = Squeeze(h1) w = Squeeze(w1)"""
GRID = LINE.format(n="h") + LINE.format(n="w") + """
    plane = Concat<axis = 0>(h1, w1, v1) col = Concat<axis = 0>(h1, v1, v1) row = Concat<axis = 0>(v1, w1, v1)
    wr = Reshape(wx, row) X = Expand(wr, plane) hr = Reshape(hx, col) Y = Expand(hr, plane) O = Expand(unit, plane)
    base3 = Concat<axis = 2>(X, Y, O) bs = Concat<axis = 0>(v1, back, v3) base = Reshape(base3, bs)
    tt = Transpose<perm = [0, 2, 1]>(theta) flat = MatMul(base, tt)
    gs = Concat<axis = 0>(back, h1, w1, last) grid = Reshape(flat, gs)"""


INPUTS = "float[n, 1, h, w] x, float[n, 2, 3] theta"


def model(body: str, inputs: str = INPUTS) -> onnx.ModelProto:
    return parser.parse_model(f"{HEAD} g ({inputs}) => (float[n, h, w, 2] y) {{ {CONSTANTS} {SIZES} {body} }}")


def thetas(n):
    return np.random.default_rng(n).normal(size=(n, 2, 3)).astype(np.float32)


def agree(run, fused, unfused, feeds):
    before, after = run(unfused, feeds), run(fused, feeds)
    for name, want in before.items():
        scale = max(1.0, float(np.nanmax(np.abs(want))))  # factors are as large as sizes
        np.testing.assert_allclose(after[name], want, rtol=0, atol=1e-5 * scale)


def test_the_grid_itself_is_fused_at_any_size(run, custom):
    plain = model(GRID + " y = Identity(grid)")
    fused, _ = rewriter.fuse(plain)
    assert custom(fused) == {"AffineGrid": 1}
    for n, h, w in ((1, 5, 9), (3, 700, 4), (2, 16, 513)):
        agree(run, fused, plain, {"x": np.zeros((n, 1, h, w), np.float32), "theta": thetas(n)})


STEPS = {
    "a comparison with 0": "k = Constant<value_int = 512>() d = Sub(h, k) p = Greater(d, zero) f = Cast<to = 1>(p)",
    "a ceiling": "k = Constant<value_float = 512.0>() q = Div(hc, k) c = Ceil(q) f = Sub(c, unit)",
    "a length": "k = Constant<value_ints = [512]>() m = Constant<value_ints = [9999999999]>() s = Slice(hi, k, m, v0) "
                "e = Size(s) f = Cast<to = 1>(e)",
    "sizes compared": "k = Constant<value_int = 50>() m = Mul(w, k) p = Greater(h, m) f = Cast<to = 1>(p)",
    "a wrapping cast": "b = Cast<to = 2>(h) c = Cast<to = 1>(b) f = Sub(hc, c)",
    "a batch of 1": "n1 = Gather(shape, v0) n = Squeeze(n1) p = Equal(n, one) f = Cast<to = 1>(p)",
}


@pytest.mark.parametrize("which", STEPS)
def test_a_factor_that_turns_with_the_size(run, which):
    odd = model(GRID + STEPS[which] + " g = Add(f, unit) y = Mul(grid, g)")
    fused, _ = rewriter.fuse(odd)
    for n, h, w in ((1, 5, 9), (2, 700, 9), (2, 6, 6)):
        agree(run, fused, odd, {"x": np.zeros((n, 1, h, w), np.float32), "theta": thetas(n)})


@pytest.mark.parametrize("line", ["p = Equal(flag, zero) f = Cast<to = 1>(p)", "m = Min(flag, one) f = Cast<to = 1>(m)",
                                  "b = Cast<to = 9>(flag) f = Cast<to = 1>(b)"])
def test_an_integer_input_that_is_a_flag(run, line):
    odd = model(GRID + line + " g = Add(f, unit) y = Mul(grid, g)", INPUTS + ", int64 flag")
    fused, _ = rewriter.fuse(odd)
    for flag in (-2, -1, 0, 1, 2, 9):
        agree(run, fused, odd, {"x": np.zeros((2, 1, 5, 9), np.float32), "theta": thetas(2), "flag": np.array(flag)})


def test_a_theta_of_batch_1_meets_larger_images(run, custom):
    """The base is expanded to the images' batch; that theta is declared to have the same is not enforced."""
    body = GRID.replace("flat = MatMul(base, tt)", "n1 = Gather(shape, v0) es = Concat<axis = 0>(n1, v1, v1) "
                        "many = Expand(base, es) flat = MatMul(many, tt)") + " y = Identity(grid)"
    plain = model(body)
    fused, _ = rewriter.fuse(plain)
    assert custom(fused) == {"AffineGrid": 1}
    for batch in (1, 3):
        agree(run, fused, plain, {"x": np.zeros((3, 1, 5, 9), np.float32), "theta": thetas(batch)})


def test_a_nan_stays_in_its_coordinate(run, custom):
    """Also where theta has to be computed first, here from the swapped coordinates."""
    swapped = model(GRID + " order = Constant<value_ints = [1, 0]>() y = Gather<axis = 3>(grid, order)")
    fused, _ = rewriter.fuse(swapped)
    assert custom(fused) == {"AffineGrid": 1}
    theta = thetas(2)
    theta[0, 0, 1] = np.nan
    agree(run, fused, swapped, {"x": np.zeros((2, 1, 5, 9), np.float32), "theta": theta})


def test_a_small_field_is_not_rounding(run):
    field = " k = Constant<value_float = 4e-7>() curved = Mul(X, X) less = Mul(curved, k) term = Mul(less, t)"
    odd = model(GRID + field + " y = Add(grid, term)", INPUTS + ", float[1, 1, 1, 1] t")
    fused, _ = rewriter.fuse(odd)
    feeds = {"x": np.zeros((2, 1, 5, 9), np.float32), "theta": thetas(2), "t": np.full((1, 1, 1, 1), 1e6, np.float32)}
    agree(run, fused, odd, feeds)


def test_a_function_of_the_users_with_our_name_is_kept(run, custom):
    own = parser.parse_model('''<ir_version: 9, opset_import: ["" : 18, "custom.ops" : 1]>
        g (float[2, 3, 4] x) => (float[2, 4, 3] y, float[2, 3, 4] z) {
            back = Constant<value_ints = [-1]>() end = Constant<value_ints = [-9223372036854775807]>()
            axis = Constant<value_ints = [2]>() f = Slice(x, back, end, axis, back)
            y = Transpose<perm = [0, 2, 1]>(f) z = custom.ops.AffineGrid(x) }
        <domain: "custom.ops", opset_import: ["" : 18]> AffineGrid (a) => (b) { b = Neg(a) }''')
    fused, _ = rewriter.fuse(own)
    assert custom(fused) == {"AffineGrid": 1, "Rot90": 1}
    assert next(f for f in fused.functions if f.name == "AffineGrid").node[0].op_type == "Neg"
    agree(run, fused, own, {"x": np.random.rand(2, 3, 4).astype(np.float32)})
