"""The pruner that a study file asks for, and where it judges."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.pruning import RungEntry, make_pruner
from orchestrator.pruning.rung import geometric_rungs
from orchestrator.spec import StudySpec


def spec(pruner: dict[str, Any], **rest: Any) -> StudySpec:
    plain = {
        "name": "pruned",
        "model": {"variant": "plt", "d_model": 32, "num_layers": 1, "num_heads": 2, "window": 8},
        "data": {"corpus": "phop", "seq_len": 32},
        "train": {"tokens": 270_000},
        "search": {"num_loops": {"choices": [1, 2]}},
        "objectives": [{"metric": "val/loss", "direction": "minimize"}],
        "budget": {"configurations": 2},
        **rest,
    }
    return StudySpec.from_plain({**plain, "pruner": pruner} if pruner else plain)


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
def test_none_judges_nowhere(pruner: dict[str, Any]) -> None:
    made = make_pruner(spec(pruner))
    assert made.rungs(10**9) == ()
    assert made.keeps(0, 5, [RungEntry(number=0, costs=(1.0,))])


@pytest.mark.parametrize("name", ["median", "moasha"])
def test_the_first_rung_is_the_files(name: str) -> None:
    made = make_pruner(spec({"name": name, "min_tokens": 50_000, "reduction_factor": 2.0}))
    assert made.rungs(270_000) == (50_000, 100_000, 200_000)


@pytest.mark.parametrize("name", ["median", "moasha"])
def test_without_a_first_rung_the_longest_trial_has_three_and_shorter_ones_share_them(name: str) -> None:
    fixed = make_pruner(spec({"name": name}))
    assert fixed.rungs(270_000) == (10_000, 30_000, 90_000)
    searched = make_pruner(
        spec({"name": name}, train={}, search={"tokens": {"choices": [27_000, 270_000], "when": {}}})
    )
    assert searched.rungs(270_000) == (10_000, 30_000, 90_000)
    assert searched.rungs(27_000) == (10_000,)


def test_ties_and_brackets_come_from_the_studys_seed() -> None:
    entries = [RungEntry(number=number, costs=(1.0,)) for number in range(9)]
    kept = []
    for seed in range(8):
        made = make_pruner(spec({"name": "moasha", "brackets": 2}, sampler={"name": "tpe", "seed": seed}))
        kept.append([made.keeps(number, 10_000, entries) for number in range(9)])
    assert len({tuple(each) for each in kept}) > 3
