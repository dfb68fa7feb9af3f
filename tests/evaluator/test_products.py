"""Products and the affine grid against ONNX Runtime."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

CONTRIB = "com.microsoft"
NUMBERS = (np.int32, np.int64, np.float16, np.float32, np.float64)


def filled(shape, dtype=np.float32, seed=0):
    whole = np.random.default_rng(seed).integers(-8, 9, shape)
    return (whole if np.dtype(dtype).kind == "i" else whole / 4).astype(dtype)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize(("left", "right"), [
    ((2, 3), (3, 4)), ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((2, 1, 3, 4), (5, 4, 2)), ((2, 3), (5, 3, 1)),
    ((0, 3), (3, 2)), ((2, 0), (0, 2)), ((4, 2, 3), (3,))])
def test_matmul(agrees, dtype, left, right):
    agrees("MatMul", [filled(left, dtype), filled(right, dtype, 1)])


@pytest.mark.parametrize(("left", "right"), [((), (3,)), ((2, 3), (2, 3)), ((2, 2, 3), (3, 3, 4))])
def test_matmul_of_what_does_not_fit_declines(declines, left, right):
    assert declines("MatMul", [filled(left), filled(right)])


@pytest.mark.parametrize("flags", list(itertools.product((0, 1), repeat=4)))
def test_fused_matmul(agrees, flags):
    names = dict(zip(("transA", "transB", "transBatchA", "transBatchB"), flags))
    for rank in (3, 4):  # with every extent the same all flags fit together
        agrees("FusedMatMul", [filled((3,) * rank), filled((3,) * rank, seed=1)], domain=CONTRIB, alpha=0.5, **names)


def test_fused_matmul_of_other_ranks(agrees, declines):
    agrees("FusedMatMul", [filled((3, 2)), filled((3, 4))], domain=CONTRIB, transA=1)
    agrees("FusedMatMul", [filled((2, 3, 4), np.float64), filled((5, 4), np.float64)], domain=CONTRIB, transB=1)
    agrees("FusedMatMul", [filled((4, 2, 3)), filled((2, 3, 5))], domain=CONTRIB, transBatchA=1)
    assert declines("FusedMatMul", [filled(3), filled((3, 3))], domain=CONTRIB, transA=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("bias", [None, (), (4,), (2, 1), (1, 1), (2, 4)])
def test_gemm(agrees, dtype, trans_a, trans_b, bias):
    a, b = filled((2, 3), dtype), filled((3, 4), dtype, 1)
    agrees("Gemm", [a.T if trans_a else a, b.T if trans_b else b, None if bias is None else filled(bias, dtype, 2)],
           transA=trans_a, transB=trans_b, alpha=0.5, beta=-2.0)


def test_gemm_of_integers(agrees, declines):
    a, b, c = (filled(shape, np.int64, k) for k, shape in enumerate(((2, 3), (3, 4), (4,))))
    agrees("Gemm", [a, b, c])
    assert "factor" in declines("Gemm", [a, b, c], alpha=0.5)


def test_gemm_does_not_grow_with_its_bias(declines):
    assert declines("Gemm", [filled((2, 3)), filled((3, 4)), filled((3, 2, 4))])
    assert declines("Gemm", [filled((1, 3)), filled((3, 4)), filled((5, 4))])


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64])
@pytest.mark.parametrize(("equation", "shapes"), [
    ("bij, bjk -> bik", [(2, 3, 4), (2, 4, 2)]), ("bij,bjk", [(2, 3, 4), (2, 4, 2)]), ("ii->i", [(3, 3)]),
    ("ij->", [(2, 3)]), ("i,j", [(3,), (2,)]), ("aB,Bc", [(3, 2), (2, 4)]), ("ij->ji", [(2, 3)]),
    ("...ij,...jk", [(2, 3, 4), (2, 4, 2)]), ("...ij,...jk->...ik", [(5, 1, 3, 4), (5, 2, 4, 2)]),
    ("...ii->...i", [(2, 3, 3)]), ("...ij,j->i...", [(2, 3, 3), (3,)]), ("...,...->...", [(2, 3), (1, 3)]),
    ("nij,hwj->nhwi", [(2, 2, 3), (3, 5, 3)])])
def test_einsum(agrees, dtype, equation, shapes):
    agrees("Einsum", [filled(shape, dtype, k) for k, shape in enumerate(shapes)], equation=equation)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.text("abcd", min_size=0, max_size=3), min_size=1, max_size=3), st.data())
def test_einsum_of_any_labels(agrees, terms, data):
    used = sorted(set("".join(terms)))
    result = "".join(data.draw(st.permutations(used))[: data.draw(st.integers(0, len(used)))])
    sizes = dict(zip("abcd", (2, 3, 1, 4)))
    arrays = [filled([sizes[label] for label in term], np.float64, k) for k, term in enumerate(terms)]
    agrees("Einsum", arrays, equation=f"{','.join(terms)}->{result}")


@pytest.mark.parametrize("equation", ["ij->k", "ij,jk->ik", "i->i", "ijk->i"])
def test_einsum_that_does_not_fit_declines(declines, equation):
    assert declines("Einsum", [filled((2, 3))], equation=equation)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [(1, 1, 3, 4), (2, 3, 5, 2), (2, 1, 2, 3, 4), (3, 1, 4, 2, 2)])
def test_affine_grid(agrees, dtype, corners, size):
    rank = len(size) - 2
    agrees("AffineGrid", [filled((size[0], rank, rank + 1), dtype), np.array(size)], opset=20, align_corners=corners)


def test_affine_grid_of_one_pixel(agrees, declines):
    theta = np.array([[[2, 0, 0.5], [0, 3, -0.25]]], np.float32)
    grid, = agrees("AffineGrid", [theta, np.array([1, 1, 1, 1])], opset=20)
    assert grid.tolist() == [[[[0.5, -0.25]]]]
    # there ONNX Runtime says 1, ONNX's reference NaN, PyTorch 0
    assert "length 1" in declines("AffineGrid", [theta, np.array([1, 1, 1, 4])], opset=20, align_corners=1)


HUGE = np.array([1 << 20, 1 << 20])
WIDE = np.broadcast_to(np.float32(0), (1 << 16,)).copy()


@pytest.mark.parametrize(("op", "arrays", "options"), [
    ("MatMul", [WIDE[:, None], WIDE[None]], {}),
    ("FusedMatMul", [WIDE[None], WIDE[None]], {"domain": CONTRIB, "transA": 1}),
    ("Gemm", [WIDE[:, None], WIDE[None], None], {}),
    ("Einsum", [WIDE, WIDE], {"equation": "i,j->ij"}),
    ("Einsum", [WIDE, WIDE], {"equation": "i,j"}),
    ("Einsum", [WIDE[:, None], WIDE[:, None, None]], {"equation": "i...,j...->ij..."}),
    ("Einsum", [WIDE, WIDE, WIDE[:4]], {"equation": "i,j,k->"}),
    ("MatMul", [np.zeros((8192, 65), np.float32), np.zeros((65, 8192), np.float32)], {}),
    ("AffineGrid", [np.zeros((1, 2, 3), np.float32), np.array([1, 1, *HUGE])], {"opset": 20}),
])
def test_hostile_operands_are_refused_before_anything_is_allocated(declines, op, arrays, options):
    assert "evaluate" in declines(op, arrays, **options)
