"""The traps of recognising grids, by number: what looks like affine_grid of theta, and is not, or not as it stands.

T1 other base ranges; T2 perspective; T3 swapped order; T4 transposed meshgrid; T5 a step behind the grid; T6 other
consumers; T7 two conventions; T8 axes of length 1; T9 constant theta; T10 the homogeneous column; T11 theta broadcast;
T12 halves; T13 attributes of samplers; T18 products that are no warp; T19 garbage; T20 overridable initializers.
T14 to T17, which are about rotations, are in `test_rotation_traps`.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from size_models import SizeSketch
from trap_models import SIZE, Warp, base_grid

import rewriter

PIXELS = SIZE[0] * SIZE[1]
ULP = 2.0**-23
STAYS, FUSES = {}, {}


def stays(name, reason, tensor):
    """A trap: the model that the decorated function makes comes out as it went in, with this reason at this tensor."""
    return lambda make: STAYS.setdefault(name, (make, reason, tensor)) and make


def fuses(name, reason="", **expected):
    """The same trap where fusing is right: these operators, and the values of the unfused model. `reason` tells why
    the sampler is left."""
    return lambda make: FUSES.setdefault(name, (make, reason, expected)) and make


def edited(place, by, **options):
    def make():
        warp = Warp(**options)
        base = base_grid()
        base[place] += by
        return warp.sample(warp.grid(base))
    return make


def based_on(base, **options):
    def make():
        warp = Warp(base.shape[-1] - 1, **options)
        return warp.sample(warp.grid(base, size=base.shape[:-1]))
    return make


def behind(step):
    """A step between the grid and its sampler."""
    def make():
        warp = Warp()
        return warp.sample(step(warp, warp.grid()))
    return make


PIXEL_BASE = base_grid() * [4.5, 3.5, 1]
UNIT_BASE = base_grid(corners=True) * [0.5, 0.5, 1] + [0.5, 0.5, 0]
NOISE = np.random.default_rng(5).uniform(-1e-4, 1e-4, (*SIZE, 1))

fuses("T1_pixel_units", AffineGridSample=1)(based_on(PIXEL_BASE))
fuses("T1_from_0_to_1", AffineGridSample=1)(based_on(UNIT_BASE))
fuses("T1_crop", AffineGridSample=1)(based_on(base_grid() * [0.95, 0.95, 1]))
stays("T1_factor_by_column", "column is off by", "theta")(
    based_on(base_grid() * np.linspace(1, 2, 9)[None, :, None]))
stays("T1_jitter", "column is off by", "theta")(based_on(base_grid() + NOISE * [1, 1, 0]))
for place in ((0, 0, 0), (6, 8, 1), (3, 4, 2)):
    column = ("x", "y", "homogeneous")[place[2]]
    stays(f"T1_edited_{place}_by_5_ulp", f"the {column} column is off by", "theta")(edited(place, 5 * ULP))
stays("T1_edited_half_by_5_ulp", "column is off by 0.004", "theta")(edited((2, 3, 0), 5 * 2.0**-10, dtype=np.float16))
stays("T1_edited_double_by_5_ulp", "column is off by", "theta")(edited((2, 3, 0), 5 * 2.0**-52, dtype=np.float64))


@stays("T1_edited_in_the_last_row_of_512", "the y column is off by 6e-07", "theta")
def large():
    warp, base = Warp(), base_grid((512, 512))
    base[-1, 300, 1] += 5 * ULP
    return warp.sample(warp.grid(base, size=(512, 512)))


@stays("T1_thin_plate_spline", "from theta [2, 23, 2] (an input): too many values", "theta")
def spline():
    warp = Warp(theta=(2, 23, 2))
    columns = np.random.default_rng(0).normal(size=(1, PIXELS, 23))
    flat = warp.op("MatMul", warp.const(columns, "base"), "theta")
    return warp.sample(warp.op("Reshape", flat, warp.const([-1, *SIZE, 2]), out="grid"))


@stays("T1_small_spline", "linear in theta, but not affine in the pixel coordinates", "theta")
def small_spline():
    warp = Warp(theta=(2, 6, 2))
    x, y, one = np.moveaxis(base_grid().reshape(-1, 3), -1, 0)
    columns = np.stack([one, x, y, x * y, x * x, y * y], axis=-1)[None]
    flat = warp.op("MatMul", warp.const(columns, "base"), "theta")
    return warp.sample(warp.op("Reshape", flat, warp.const([-1, *SIZE, 2]), out="grid"))


def homography(warp):
    flat = warp.op("MatMul", warp.const(base_grid().reshape(1, -1, 3), "base"),
                   warp.op("Transpose", "theta", perm=[0, 2, 1]))
    over = warp.op("Slice", flat, warp.const([2]), warp.const([3]), warp.const([2]), out="third")
    both = warp.op("Slice", flat, warp.const([0]), warp.const([2]), warp.const([2]))
    return both, over


@stays("T2_perspective", "(Div is not linear in what it is given)", "divided")
def perspective():
    warp = Warp(theta=(2, 3, 3))
    flat = warp.op("Div", *homography(warp), out="divided")
    return warp.sample(warp.op("Reshape", flat, warp.const([-1, *SIZE, 2]), out="grid"))


@fuses("T2_the_third_row_is_dropped", AffineGridSample=1)
def dropped():
    warp = Warp(theta=(2, 3, 3))
    both, _ = homography(warp)
    return warp.sample(warp.op("Reshape", both, warp.const([-1, *SIZE, 2]), out="grid"))


@fuses("T2_the_third_row_is_sliced_off_theta", AffineGridSample=1)
def sliced():
    warp = Warp(theta=(2, 3, 3))
    rows = warp.op("Slice", "theta", warp.const([0]), warp.const([2]), warp.const([1]))
    return warp.sample(warp.grid(theta=rows))


fuses("T3_columns_y_x_1", AffineGridSample=1)(based_on(base_grid()[..., [1, 0, 2]]))
fuses("T3_columns_z_y_x_1", AffineGridSample=1)(based_on(base_grid((3, 4, 5))[..., [2, 1, 0, 3]]))
fuses("T3_reversed_behind", AffineGridSample=1)(
    behind(lambda w, g: w.op("Gather", g, w.const([1, 0]), axis=3)))
SQUARE = base_grid((8, 8)).swapaxes(0, 1)
TRANSPOSED = base_grid((9, 7)).swapaxes(0, 1)
fuses("T4_transposed_meshgrid_of_a_square", AffineGridSample=1)(based_on(SQUARE))
fuses("T4_transposed_meshgrid", AffineGridSample=1)(based_on(TRANSPOSED))
stays("T4_transposed_meshgrid_reshaped", "column is off by", "theta")(based_on(base_grid((9, 7)).reshape(7, 9, 3)))


def flow(warp, grid):
    return warp.op("Add", grid, warp.input("flow", np.full((2, *SIZE, 2), 0.1)), out="moved")


def two_samplers(warp, grid):
    warp.sample(grid)
    return warp.op("Mul", grid, warp.const(0.5))


fuses("T5_flow", "from flow [2, 7, 9, 2] (an input): too many values", AffineGrid=1)(behind(flow))
fuses("T5_clip", "Clip is not linear", AffineGrid=1)(
    behind(lambda w, g: w.op("Clip", g, w.const(-1.0), w.const(1.0))))
fuses("T5_tanh", "Tanh is not linear", AffineGrid=1)(behind(lambda w, g: w.op("Tanh", g)))
fuses("T5_scaled_by_a_tensor", AffineGrid=1)(
    behind(lambda w, g: w.op("Mul", g, w.const(np.linspace(1, 2, PIXELS).reshape(1, *SIZE, 1)))))


@stays("T5_flow_on_a_constant_grid", "from flow [2, 7, 9, 2] (an input): too many values", "flow")
def constant_flow():
    warp = Warp()
    return warp.sample(flow(warp, warp.const(np.repeat(base_grid()[None, ..., :2], 2, 0), "grid")))


@stays("T5_clamped_by_pixel", "(Clip is not linear in what it is given)", "clipped")
def clamped():
    warp = Warp()
    terms = warp.op("Mul", warp.const(base_grid().reshape(1, PIXELS, 1, 3), "base"),
                    warp.op("Unsqueeze", "theta", warp.const([1])))
    clipped = warp.op("Clip", terms, warp.const(-1.0), warp.const(1.0), out="clipped")
    flat = warp.op("ReduceSum", clipped, warp.const([3]), keepdims=0)
    return warp.sample(warp.op("Reshape", flat, warp.const([-1, *SIZE, 2]), out="grid"))


@fuses("T6_the_grid_is_an_output", "the grid is needed elsewhere too", AffineGrid=1)
def grid_output():
    warp = Warp()
    grid = warp.grid()
    return warp.sample(grid).give(grid)


@fuses("T6_the_base_has_another_consumer", AffineGridSample=1)
def base_output():
    warp = Warp()
    warp.sample(warp.grid())
    return warp.give(warp.op("Neg", "base"))


@stays("T6_the_product_is_an_output", "needed elsewhere too: fusing would add work", "matmul_1")
def product_output():
    warp = Warp()
    return warp.sample(warp.grid()).give("matmul_1")


@fuses("T6_captured_by_a_branch", AffineGrid=1)
def captured():
    warp = Warp()
    grid = warp.grid()
    bodies = {}
    for name, op_type in (("then_branch", "Neg"), ("else_branch", "Abs")):
        out = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, [2, *SIZE, 2])
        bodies[name] = helper.make_graph([helper.make_node(op_type, [grid], [out.name])], name, [], [out])
    return warp.give(warp.op("If", warp.input("flag", np.array(True)), **bodies))


fuses("T7_corners_then_centres", AffineGridSample=1)(based_on(base_grid(corners=True)))


@fuses("T7_centres_then_corners", AffineGridSample=1)
def centres_then_corners():
    warp = Warp()
    return warp.sample(warp.grid(), align_corners=1)


MINUS = np.stack([*np.meshgrid([-1.0], np.linspace(-1, 1, 9), indexing="ij")[::-1], np.ones((1, 9))], axis=-1)
fuses("T8_coordinate_0", AffineGridSample=1)(based_on(base_grid((1, 9), corners=True)))
fuses("T8_coordinate_minus_1", AffineGridSample=1)(based_on(MINUS))
stays("T8_not_a_number", "column is off by nan", "theta")(based_on(np.where(MINUS == -1, np.nan, MINUS)))


@stays("T9_constant_grid_without_a_sampler", None, None)
def constant_grid():
    warp = Warp(image=False)
    return warp.give(warp.op("Add", "theta", warp.const(0.5)), warp.op("Neg", warp.const(base_grid(), "grid")))


@stays("T9_small_constant_grid", "of 252 numbers: too few to be worth replacing", "grid")
def small_constant():
    warp = Warp()
    return warp.sample(warp.const(np.repeat(base_grid()[None, ..., :2], 2, 0), "grid"))


@stays("T9_large_constant_grid_edited", "not affine in the pixel coordinates", "grid")
def large_constant():
    warp = Warp(batch=1)
    grid = base_grid((40, 40))[None, ..., :2]
    grid[0, 3, 5, 1] += 1e-5
    return warp.sample(warp.const(grid, "grid"))


@fuses("T9_large_constant_grid", AffineGridSample=1)
def constant_theta():
    warp = Warp(batch=1)
    return warp.sample(warp.const(base_grid((40, 40))[None, ..., :2] * 0.7 + 0.1, "grid"))


@fuses("T10_no_homogeneous_column", AffineGridSample=1)
def two_columns():
    warp = Warp()
    linear = warp.op("Slice", "theta", warp.const([0]), warp.const([2]), warp.const([2]))
    moved = warp.op("Reshape", warp.op("Gather", "theta", warp.const([2]), axis=2), warp.const([-1, 1, 2]))
    turned = warp.op("Transpose", linear, perm=[0, 2, 1])
    flat = warp.op("Add", warp.op("MatMul", warp.const(base_grid()[..., :2].reshape(1, -1, 2)), turned), moved)
    return warp.sample(warp.op("Reshape", flat, warp.const([-1, *SIZE, 2]), out="grid"))


fuses("T10_ones_first", AffineGridSample=1)(based_on(base_grid()[..., [2, 0, 1]]))
fuses("T10_negative_scale", AffineGridSample=1)(based_on(base_grid() * [1, -1, 1]))
stays("T10_two_instead_of_ones_somewhere", "the homogeneous column is off by 1", "theta")(edited((3, 4, 2), 1))


@fuses("T10_rows_y_first", AffineGridSample=1)
def rows_swapped():
    warp = Warp()
    return warp.sample(warp.grid(theta=warp.op("Gather", "theta", warp.const([1, 0]), axis=1)))


@fuses("T11_theta_of_batch_1", AffineGridSample=1)
def broadcast():
    warp = Warp(batch="N", theta=(1, 2, 3))
    count = warp.op("Slice", warp.op("Shape", "x"), warp.const([0]), warp.const([1]))
    shape = warp.op("Concat", count, warp.const([1, 1]), axis=0)
    return warp.sample(warp.grid(theta=warp.op("Expand", "theta", shape)))


@stays("T11_a_base_for_each_sample", "column is off by", "theta")
def per_sample():
    warp = Warp()
    base = warp.const(np.stack([base_grid(), base_grid() * [1.01, 1, 1]]).reshape(2, -1, 3), "base")
    return warp.sample(warp.grid(base))


@stays("T11_theta_for_each_row", "too many values to be the parameters of an affine grid", "theta")
def row_thetas():
    warp = Warp(theta=(2, 7, 2, 3))
    terms = warp.op("MatMul", warp.const(base_grid()[None], "base"), warp.op("Transpose", "theta", perm=[0, 1, 3, 2]))
    return warp.sample(warp.op("Identity", terms, out="grid"))


def half(size, corners, factor=1.0):
    return based_on(base_grid(size, corners) * [factor, factor, 1], dtype=np.float16)


fuses("T12_a_half_base_scaled", AffineGridSample=1)(half((20, 30), False, 0.99))
fuses("T12_a_half_base", AffineGridSample=1)(half((20, 30), True))


@fuses("T13_3d", AffineGridSample=1)
def three():
    warp = Warp(3)
    return warp.sample(warp.grid(base_grid((3, 4, 5)), size=(3, 4, 5)))


fuses("T13_no_attributes", AffineGridSample=1)(based_on(base_grid(), opset=16))


@stays("T18_attention", "MatMul multiplies phi with transpose_0, neither of them constant", "matmul_1")
def attention():
    warp = Warp()
    flat = warp.op("MatMul", warp.input("phi", np.ones((2, PIXELS, 3))), warp.op("Transpose", "theta", perm=[0, 2, 1]))
    return warp.sample(warp.op("Reshape", flat, warp.const([-1, *SIZE, 2]), out="grid"))


@stays("T18_points", None, None)
def points():
    warp = Warp(image=False)
    cloud = warp.input("points", np.ones((2, 40, 3)))
    return warp.give(warp.op("MatMul", cloud, warp.op("Transpose", "theta", perm=[0, 2, 1])))


@stays("T18_a_constant_that_is_no_base", "column is off by", "theta")
def projection():
    warp = Warp()
    return warp.sample(warp.grid(np.random.default_rng(1).normal(size=(*SIZE, 3))))


def scattered(count):
    """A buffer of garbage whose columns x, y and 1 are written; `count` of the pixels of the last."""
    warp = Warp()
    base = warp.const(np.full((PIXELS, 3), 1e30), "empty")
    for j in range(3):
        rows = np.arange(count if j == 2 else PIXELS)
        places = np.stack([rows, np.full_like(rows, j)], axis=-1)
        base = warp.op("ScatterND", base, warp.const(places), warp.const(base_grid().reshape(-1, 3)[rows, j]))
    return warp.sample(warp.grid(warp.op("Unsqueeze", base, warp.const([0]))))


fuses("T19_garbage_overwritten", AffineGridSample=1)(lambda: scattered(PIXELS))
stays("T19_garbage_left_in_one_place", "the homogeneous column is off by 1e+30", "theta")(lambda: scattered(PIXELS - 1))


@stays("T20_an_overridable_base", "base is an initializer that is an input too, so callers may override it", "matmul_1")
def overridable():
    warp = Warp()
    warp.sample(warp.grid())
    warp.input("base", base_grid().reshape(1, -1, 3))
    return warp


@fuses("T20_an_overridable_theta", AffineGridSample=1)
def overridable_theta():
    warp = Warp()
    warp.const(np.ones((2, 2, 3)), "theta")
    return warp.sample(warp.grid())


@pytest.mark.parametrize("trap", STAYS)
def test_stays(trap):
    make, reason, tensor = STAYS[trap]
    model = make().model()
    fused, report = rewriter.fuse(model)
    assert fused.SerializeToString() == model.SerializeToString()
    found = [(miss.reason, miss.tensor) for miss in report.missed]
    if reason is None:
        assert not found  # nothing here comes close
        return
    assert any(reason in said and tensor == at for said, at in found), found


@pytest.mark.parametrize("trap", FUSES)
def test_fuses_with_an_adjusted_theta_or_in_part(trap, run, custom):
    make, reason, expected = FUSES[trap]
    warp = make()
    model = warp.model()
    fused, report = rewriter.fuse(model)
    assert custom(fused) == expected, [m.reason for m in report.missed]
    assert any(reason in miss.reason for miss in report.missed) or not reason, report.missed
    onnx.checker.check_model(fused, full_check=True)
    for name, want in run(model, warp.feeds).items():
        got = run(fused, warp.feeds)[name]
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-2 if want.dtype == np.float16 else 2e-5)


def test_t1_pixels_of_a_runtime_size(run, custom):
    """Theta is multiplied with the size."""
    s = SizeSketch(17, "image")
    _, h, w = s.raw_sizes()
    x, y, unit = s.indices("range", w), s.indices("range", h), s.real(1)
    model = s.model(s.product("last", s.plane("expand", x, y, h, w, unit), x, y, unit, -1, h, w), sampler=False)
    fused, _ = rewriter.fuse(model)
    assert custom(fused) == {"AffineGrid": 1}
    for height, width in ((2, 2), (5, 9), (31, 4)):
        feeds = s.feeds((2, height, width))
        i, j = np.mgrid[:height, :width]
        want = np.stack([j, i, np.ones_like(i)], -1) @ feeds["theta"][:, None].swapaxes(-1, -2)
        for each in (model, fused):
            np.testing.assert_allclose(*run(each, feeds).values(), want, rtol=0, atol=2e-6 * np.max(np.abs(want)))
