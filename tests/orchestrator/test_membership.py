"""Front, dominated or undecided: against the plain front where nothing is noisy, and against the truth where it is."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orchestrator.configurations import group, pareto_front
from orchestrator.membership import Membership, counts, memberships
from orchestrator.records import Objective, StudyRecord, TrialRecord
from tests.orchestrator.recommendation.planted import ACCURACY, KV, MS, study, trial

OBJECTIVES = (
    Objective(metric=ACCURACY, direction="maximize"),
    Objective(metric=MS, direction="minimize"),
    Objective(metric=KV, direction="minimize"),
)


def planted(rows: Sequence[tuple[Sequence[float], float, float]]) -> StudyRecord:
    """One configuration per row: accuracies by seed, milliseconds, bytes."""
    trials: list[TrialRecord] = []
    for index, (values, ms, kv) in enumerate(rows):
        for seed, value in enumerate(values):
            trials.append(trial(len(trials), 2, index, seed, {ACCURACY: value, MS: ms, KV: kv}))
    return replace(study(trials), objectives=OBJECTIVES)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=10))
def test_without_noise_it_is_the_front(costs: list[tuple[int, int]]) -> None:
    record = replace(planted([([0.5], ms, kv) for ms, kv in costs]), objectives=OBJECTIVES[1:])
    found = memberships(record)
    best = {one.fingerprint for one in group(record) if one.on_front}
    assert {name for name, one in found.items() if one.membership is Membership.FRONT} == best
    assert counts(found)[Membership.UNDECIDED] == 0


def test_three_seeds_tell_what_is_far_apart_and_not_what_is_near() -> None:
    close = [0.80, 0.82, 0.81], [0.81, 0.80, 0.82]
    record = planted(
        [(close[0], 5.0, 1.0), (close[1], 6.0, 2.0), ([0.50, 0.52, 0.51], 6.0, 2.0), ([0.4] * 3, 4.0, 1.0)]
    )
    found = memberships(record)
    assert [found[f"2-{index}"].membership for index in range(4)] == ["front", "undecided", "dominated", "front"]
    assert found["2-1"].rivals == ("2-0",)


def test_one_seed_leaves_what_noise_could_turn_undecided() -> None:
    record = planted([([0.9], 5.0, 1.0), ([0.5], 6.0, 2.0), ([0.4], 4.0, 1.0)])
    found = memberships(record)
    assert [found[f"2-{index}"].membership for index in range(3)] == ["undecided", "undecided", "front"]
    assert found["2-1"].further_seeds is None


def test_further_seeds_are_the_fewest_that_settle_it() -> None:
    """By the paired t-test's formula, counting up."""
    a, b = np.array([0.80, 0.84, 0.79, 0.83]), np.array([0.79, 0.78, 0.82, 0.79])
    found = memberships(planted([(list(a), 5.0, 1.0), (list(b), 6.0, 2.0)]))["2-1"]
    gap, spread = np.mean(a - b), np.std(a - b, ddof=1)
    fewest = next(k for k in range(1, 65) if gap > stats.t.ppf(0.975, 3 + k) * spread / math.sqrt(4 + k))
    assert (found.membership, found.further_seeds) == (Membership.UNDECIDED, fewest)


def test_infeasible_and_unfinished_configurations_are_left_out() -> None:
    record = planted([([0.9], 5.0, 1.0), ([0.5], 6.0, 2.0)])
    broken = replace(record.trials[1], violations={"x <= 1": 1.0}, feasible=False)
    assert set(memberships(replace(record, trials=(record.trials[0], broken)))) == {"2-0"}
    assert memberships(replace(record, trials=())) == {}


@pytest.mark.parametrize("seeds", [2, 4])
def test_certain_places_are_right_in_95_of_100_studies(seeds: int) -> None:
    """Every claim of a study must be right at once; 200 studies, true front from the true means."""
    random, wrong, claims = np.random.default_rng(seeds), 0, 0
    for _ in range(200):
        truth, ms = random.uniform(0.5, 0.9, size=6), random.choice([4.0, 5.0, 6.0], size=6)
        noisy = truth[:, None] + 0.03 * random.normal(size=(6, seeds))
        record = planted([(list(values), float(cost), 1.0) for values, cost in zip(noisy, ms, strict=True)])
        best = pareto_front([(-value, float(cost)) for value, cost in zip(truth, ms, strict=True)])
        found = memberships(record)
        said = {index: found[f"2-{index}"].membership for index in range(6)}
        claims += sum(one is not Membership.UNDECIDED for one in said.values())
        wrong += any(
            (one is Membership.FRONT and index not in best) or (one is Membership.DOMINATED and index in best)
            for index, one in said.items()
        )
    assert claims > 200
    assert wrong <= 10
