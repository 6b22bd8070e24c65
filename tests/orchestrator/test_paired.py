"""Paired differences against scipy's paired t-test and against counted coverage."""

import numpy as np
import pytest
from scipy import stats

from orchestrator.configurations import group
from orchestrator.paired import by_item, by_seed
from orchestrator.statistics import Interval
from tests.orchestrator.recommendation.planted import ACCURACY, KV, MS, simulate


def test_seeds_are_paired_by_students_t() -> None:
    one, other = group(simulate({1: [0.7], 2: [0.8]}, 0.01, 5, np.random.default_rng(0), seed_noise=0.1))
    gap = by_seed(other, one, ACCURACY)
    columns = [[trial.metrics[ACCURACY] for trial in each.trials] for each in (other, one)]
    expected = stats.ttest_rel(*columns).confidence_interval(0.95)
    assert gap is not None
    assert (gap.low, gap.high) == pytest.approx((expected.low, expected.high))
    kv = by_seed(other, one, KV)
    assert kv is not None
    assert (kv.low, kv.high, kv.n) == (None, None, 1)
    assert by_seed(other, one, "val/loss") is None


def test_what_replicates_share_has_no_interval() -> None:
    one, other = group(simulate({1: [0.7], 2: [0.8]}, 0.01, 5, np.random.default_rng(0)))
    assert by_seed(other, one, MS) == Interval(pytest.approx(0.3), None, None, 1)


def test_items_that_both_have_are_paired() -> None:
    gap = by_item({0: 1.0, 1: 2.0, 5: 9.0}, {0: 0.5, 1: 1.0, 7: 0.0})
    assert gap is not None
    assert (gap.mean, gap.n) == (0.75, 2)
    assert by_item({0: 1.0}, {1: 1.0}) is None
    assert by_item({0: 1.0, 1: 2.0}, {0: 0.0, 1: 1.0}) == Interval(1.0, None, None, 2)


def test_the_bootstrap_is_the_same_every_time_and_covers_what_it_says() -> None:
    random, covered, studies = np.random.default_rng(0), 0, 150
    for _ in range(studies):
        hard = random.exponential(2.0, size=40)
        one, other = hard + random.exponential(0.5, size=40), hard
        gap = by_item(dict(enumerate(one)), dict(enumerate(other)))
        assert gap is not None
        assert gap.low is not None
        assert gap.high is not None
        covered += gap.low <= 0.5 <= gap.high
    assert stats.binomtest(covered, studies, 0.95).pvalue > 0.001
    assert gap == by_item(dict(enumerate(one)), dict(enumerate(other)))
