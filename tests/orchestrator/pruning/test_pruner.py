"""The pruner that a study file asks for, and where it judges."""

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.pruning import RungEntry, make_pruner
from orchestrator.pruning.rung import geometric_rungs
from orchestrator.spec import StudySpec

MakeSpec = Callable[..., StudySpec]
TRAIN = {"tokens": 270_000}


@settings(deadline=None)
@given(st.integers(1, 10**6), st.integers(5, 24), st.integers(1, 10**8))
def test_rungs_are_powers_of_the_factor_below_the_end(first: int, quarters: int, total: int) -> None:
    factor = Fraction(quarters, 4)
    rungs = geometric_rungs(first, float(factor), total)
    assert all(a < b for a, b in pairwise(rungs))
    assert all(first <= rung < total for rung in rungs)
    exact = [first * factor**k for k in range(400) if first * factor**k < total - 1]
    for tokens in exact:
        assert min(abs(rung - tokens) for rung in rungs) <= 1 + 1e-9 * tokens


def test_rungs_of_whole_factors_are_exact() -> None:
    assert geometric_rungs(200_000, 3, 4_000_000) == (200_000, 600_000, 1_800_000)
    assert geometric_rungs(200_000, 3, 1_800_000) == (200_000, 600_000)
    assert geometric_rungs(10, 2.5, 100) == (10, 25, 63)
    assert geometric_rungs(100, 3, 100) == ()


@pytest.mark.parametrize("pruner", [{}, {"name": "none"}])
def test_none_judges_nowhere(make_spec: MakeSpec, pruner: dict[str, Any]) -> None:
    made = make_pruner(make_spec(pruner=pruner))
    assert made.rungs(10**9) == ()
    assert made.keeps(0, 5, [RungEntry(number=0, costs=(1.0,))])


@pytest.mark.parametrize("name", ["median", "moasha"])
def test_the_first_rung_is_the_files(make_spec: MakeSpec, name: str) -> None:
    made = make_pruner(make_spec(train=TRAIN, pruner={"name": name, "min_tokens": 50_000, "reduction_factor": 2.0}))
    assert made.rungs(270_000) == (50_000, 100_000, 200_000)


@pytest.mark.parametrize("name", ["median", "moasha"])
def test_without_a_first_rung_the_longest_trial_has_three_and_shorter_ones_share_them(
    make_spec: MakeSpec, name: str
) -> None:
    fixed = make_pruner(make_spec(train=TRAIN, pruner={"name": name}))
    assert fixed.rungs(270_000) == (10_000, 30_000, 90_000)
    search = {"tokens": {"choices": [27_000, 270_000]}}
    searched = make_pruner(make_spec(search=search, pruner={"name": name}))
    assert searched.rungs(270_000) == (10_000, 30_000, 90_000)
    assert searched.rungs(27_000) == (10_000,)


def test_ties_and_brackets_come_from_the_studys_seed(make_spec: MakeSpec) -> None:
    entries = [RungEntry(number=number, costs=(1.0,)) for number in range(9)]
    kept = []
    for seed in range(8):
        sampler, pruner = {"name": "tpe", "seed": seed}, {"name": "moasha", "brackets": 2}
        made = make_pruner(make_spec(train=TRAIN, sampler=sampler, pruner=pruner))
        kept.append([made.keeps(number, 10_000, entries) for number in range(9)])
    assert len({tuple(each) for each in kept}) > 3
