"""Signed permutations against numpy: composition, inverse, rotations, spellings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patterns.signed_permutation import SignedPermutation, compose, holds_rotation

RANKS = st.integers(1, 5)


@st.composite
def elements(draw, ranks=RANKS):
    rank = draw(ranks)
    return SignedPermutation(tuple(draw(st.permutations(range(rank)))), draw(st.frozensets(st.integers(0, rank - 1))))


@st.composite
def pairs(draw):
    rank = draw(st.integers(1, 5))
    return draw(elements(st.just(rank))), draw(elements(st.just(rank)))


def arange(rank):
    return np.arange(np.prod(range(2, rank + 2))).reshape(*range(2, rank + 2))


@given(pairs())
def test_then_is_one_behind_the_other(pair):
    first, second = pair
    x = arange(first.rank)
    np.testing.assert_array_equal(first.then(second)(x), second(first(x)))


@given(elements())
def test_inverse_undoes(element):
    assert element.then(element.inverse()).is_identity and element.inverse().then(element).is_identity


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("plane", [(0, 1), (0, 2), (1, 2), (2, 3), (1, 3)])
def test_rotation_is_numpy_rot90(k, plane):
    x = arange(4)
    perm = list(range(4))
    if k % 2:
        perm[plane[0]], perm[plane[1]] = plane[1], plane[0]
    flips = {1: plane[:1], 2: plane, 3: plane[1:]}[k]
    element = SignedPermutation(tuple(perm), frozenset(flips))
    assert element.rotation() == (k, plane)
    np.testing.assert_array_equal(element(x), np.rot90(x, k, plane))


@given(elements())
def test_rotation_is_found_exactly_where_there_is_one(element):
    x = arange(element.rank)
    planes = [(a, b) for a in range(element.rank) for b in range(a + 1, element.rank)]
    turns = [(k, plane) for plane in planes for k in (1, 2, 3)
             if np.array_equal(np.rot90(x, k, plane), element(x))]
    assert turns == ([element.rotation()] if element.rotation() else [])


@given(elements())
def test_spelled_makes_the_same(element):
    parts = element.spelled()
    assert len([p for p in parts if p.moved]) <= 1
    assert all(not (p.moved and p.flips) for p in parts)
    assert (compose(parts) == element) if parts else element.is_identity


@given(elements(st.integers(2, 5)))
def test_what_is_split_off_composes_back(element):
    for split in (element.rotation_and_layout(), element.rotation_and_flip()):
        if split:
            assert split[0].rotation() and not split[1].rotation()
            assert split[0].then(split[1]) == element


def test_channel_layouts():
    """A half turn of the image and NCHW -> NHWC; a half turn of channels and width is none of an image."""
    to_last = SignedPermutation((0, 2, 3, 1))
    turn = SignedPermutation.flip(4, (2, 3))
    assert turn.then(to_last).rotation_and_layout() == (turn, to_last)
    assert SignedPermutation.flip(4, (1, 3)).then(to_last).rotation_and_layout() is None


def test_an_anti_transpose_is_a_rotation_and_a_flip():
    element = SignedPermutation((0, 1, 3, 2), frozenset({2, 3}))
    turn, flip = element.rotation_and_flip()
    assert turn.rotation() == (3, (2, 3)) and flip.flips == {2}
    x = arange(4)
    np.testing.assert_array_equal(np.flip(np.rot90(x, 3, (2, 3)), 2), element(x))


def test_flips_are_spelled_where_their_axis_lies_further_out():
    """Three quarter turns: flip of axis 2, then transpose, instead of a flip of the last axis behind it."""
    parts = SignedPermutation((0, 1, 3, 2), frozenset({3})).spelled()
    assert parts == (SignedPermutation.flip(4, (2,)), SignedPermutation((0, 1, 3, 2)))


def test_holds_rotation():
    flip_w, flip_h, swap = (SignedPermutation.flip(4, (3,)), SignedPermutation.flip(4, (2,)),
                            SignedPermutation((0, 1, 3, 2)))
    assert holds_rotation([flip_w, swap, flip_w]) and holds_rotation([flip_w, flip_h])
    assert not holds_rotation([flip_w, flip_w]) and not holds_rotation([swap, swap])
    assert not holds_rotation([SignedPermutation((0, 2, 3, 1)), SignedPermutation((0, 3, 1, 2))])


def test_words():
    assert str(SignedPermutation((0, 2, 1), frozenset({1, 2}))) == \
        "the axes permuted to (0, 2, 1) with axes 1 and 2 reversed"
    assert str(SignedPermutation.flip(3, (2,))) == "axis 2 reversed"
