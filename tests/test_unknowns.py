"""Numbers made of sizes that may take any value: which they are, that equal ones stay equal, when there are none."""

from __future__ import annotations

import numpy as np
import pytest
from size_texts import POSITIONS, size_arithmetic

from rewriter.unknowns import unknowns

ROUNDED = """k = Constant<value_ints = [32]>() less = Constant<value_ints = [31]>()
    more{0} = Add({1}, less) rest{0} = Mod(more{0}, k) up{0} = Sub(more{0}, rest{0})\n"""


def groups(scope, values, *names):
    found = unknowns(scope, [values[name] for name in names])
    return found if found is None else [sorted(v.name for v in same) for same, _, _ in found.groups]


def test_nothing_turns():
    scope, values = size_arithmetic("both = Mul(h, w)")
    assert groups(scope, values, "both") is None


def test_a_remainder_is_a_number():
    scope, values = size_arithmetic(ROUNDED.format("h", "h"))
    assert groups(scope, values, "uph") == [["resth"]]


def test_numbers_that_are_computed_alike_are_one():
    scope, values = size_arithmetic(ROUNDED.format("h", "h") + "more = Add(h, less) rest = Mod(more, k)")
    found = unknowns(scope, [values["resth"], values["rest"]])
    assert [len(same) for same, _, _ in found.groups] == [2]
    rows = [(t.value(values["resth"]).tolist(), t.value(values["rest"]).tolist()) for t in found.trials(
        scope, [values["resth"], values["rest"]])]
    assert all(a == b for a, b in rows) and len({tuple(a) for a, _ in rows}) >= 4


def test_they_vary_apart_from_sizes():
    scope, values = size_arithmetic("k = Constant<value_ints = [20]>()\n r = Min(w, k)\n both = Concat<axis = 0>(w, r)")
    found = unknowns(scope, [values["both"]])
    pairs = np.array([t.value(values["both"]) for t in found.trials(scope, [values["both"]])])
    assert pairs[:, 1].max() > 20 and np.any(pairs[:, 0] < pairs[:, 1]) and np.any(pairs[:, 0] > pairs[:, 1])


@pytest.mark.parametrize("line", [
    "k = Constant<value_ints = [20]>()\n c = Greater(w, k)\n r = Cast<to = 7>(c)",  # a flag
    POSITIONS + "k = Constant<value_int = 200>()\n r = Min(line, k)",  # positions that are cut off
    "k = Constant<value_ints = [2]>()\n m = Mod(w, k)\n c = Equal(m, zero)\n r = Where(c, h, w)"])  # of a remainder
def test_where_outcomes_still_depend_on_the_size(line):
    scope, values = size_arithmetic(line)
    found = unknowns(scope, [values["r"]])
    assert found is None or found.trials(scope, [values["r"]]) == [] or values["r"] in found.groups[0][0]


def test_a_comparison_that_always_comes_out_the_same_is_none():
    scope, values = size_arithmetic("i = Constant<value_ints = [1]>() less = Sub(w, i) r = Max(less, i)")
    assert groups(scope, values, "r") is None
