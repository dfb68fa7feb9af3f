"""Mutated models without the fuzzer: the same seeds every time, and those of what was found."""

from __future__ import annotations

import pytest
from fuzz.mutating import mutate
from fuzz.seeds import feeds, models, strangers
from fuzz.targets import read_and_fuse

SEEDS = models()
MUTANTS = 12  # of each


@pytest.mark.parametrize("name", SEEDS)
def test_mutated_models(name):
    outcomes = [read_and_fuse(mutate(SEEDS[name], seed), feeds(name)) for seed in range(MUTANTS)]
    assert set(outcomes) <= {"refused", "nothing", "fused", "equal"}


def test_some_mutants_are_still_fused_and_equal():
    assert read_and_fuse(SEEDS["turn_1"], feeds("turn_1")) == "equal"
    outcomes = [read_and_fuse(mutate(SEEDS["turn_1"], seed), feeds("turn_1")) for seed in range(40)]
    assert {"refused", "nothing", "equal"} <= set(outcomes)


@pytest.mark.parametrize("name", strangers())
def test_files_that_are_no_models(name):
    assert read_and_fuse(strangers()[name]) == "refused"
