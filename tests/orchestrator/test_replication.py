"""Who gets another seed: checked against scipy's pooled t-test, and against common sense."""

import numpy as np
import pytest
from scipy import stats

from orchestrator.replication import Replicated, worth_another_seed


def one(name: str, *rows: tuple[float, ...]) -> Replicated:
    return Replicated(fingerprint=name, costs=rows, seeds=len(rows))


def test_nothing_known_of_the_noise_leaves_everything_undecided_the_front_first() -> None:
    configurations = [one("bad", (9.0, 9.0)), one("a", (1.0, 2.0)), one("b", (2.0, 1.0))]
    assert worth_another_seed(configurations, [False, False]) == ["a", "b", "bad"]


def test_exact_objectives_decide_at_once() -> None:
    configurations = [one("bad", (9.0,)), one("good", (1.0,)), one("equal", (1.0,))]
    assert worth_another_seed(configurations, [True]) == ["good", "equal"]


def test_no_configurations_no_seeds() -> None:
    assert worth_another_seed([], [False]) == []


def test_everyone_means_everyone_and_fewer_seeds_go_first() -> None:
    configurations = [one("bad", (9.0,)), one("good", (1.0,), (1.1,)), one("also", (0.9,))]
    assert worth_another_seed(configurations, [False], everyone=True) == ["also", "bad", "good"]


@pytest.mark.parametrize("seed", range(20))
def test_one_objective_is_decided_by_the_pooled_t_test(seed: int) -> None:
    """Two configurations with one objective: the loser is dropped exactly when the two-sided t-test is below 5 %."""
    random = np.random.default_rng(seed)
    better = random.normal(0.0, 1.0, size=random.integers(2, 6))
    worse = random.normal(random.uniform(0.5, 4.0), 1.0, size=random.integers(2, 6))
    if better.mean() > worse.mean():
        better, worse = worse, better
    pair = [one("worse", *((v,) for v in worse)), one("better", *((v,) for v in better))]
    significant = stats.ttest_ind(worse, better, equal_var=True).pvalue < 0.05
    assert (worth_another_seed(pair, [False]) == ["better"]) == significant


def test_both_kinds_of_decision_occur_in_the_test_above() -> None:
    verdicts = set()
    for seed in range(20):
        random = np.random.default_rng(seed)
        better = random.normal(0.0, 1.0, size=random.integers(2, 6))
        worse = random.normal(random.uniform(0.5, 4.0), 1.0, size=random.integers(2, 6))
        verdicts.add(bool(stats.ttest_ind(worse, better, equal_var=True).pvalue < 0.05))
    assert verdicts == {True, False}


def test_being_worse_in_the_noisy_objective_only_by_chance_is_not_clear() -> None:
    """The exact objective is worse, the noisy one worse by less than the noise: it may still be on the front."""
    front = one("front", (1.0, 10.0), (1.2, 10.0))
    near, far = one("near", (1.3, 11.0)), one("far", (9.0, 11.0))
    assert worth_another_seed([front, near, far], [False, True]) == ["front", "near"]


def test_better_somewhere_for_sure_is_never_dominated() -> None:
    front, slow_but_good = one("fast", (5.0, 1.0), (5.1, 1.0)), one("good", (1.0, 2.0))
    assert set(worth_another_seed([front, slow_but_good], [False, True])) == {"fast", "good"}
