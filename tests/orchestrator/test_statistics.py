"""Intervals equal another library's, and cover what they claim."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.statistics import Interval, interval


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8).filter(lambda values: np.ptp(values) > 1e-3),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_the_interval_is_students(values: list[float], level: float) -> None:
    found = interval(values, level)
    low, high = stats.t.interval(level, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert found.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-9)
    assert found.low == pytest.approx(low, rel=1e-9, abs=1e-6)
    assert found.high == pytest.approx(high, rel=1e-9, abs=1e-6)
    assert found.n == len(values)


def test_three_seeds_by_hand() -> None:
    """t(2, 0.975) = 4.302653; s = 1, so the margin is 4.302653 / sqrt(3)."""
    found = interval([1.0, 2.0, 3.0])
    assert found.high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-6)


def test_one_value_has_no_interval() -> None:
    assert interval([2.5]) == Interval(mean=2.5, low=None, high=None, n=1)


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    found = [interval(list(random.normal(5.0, 2.0, size=3))) for _ in range(2000)]
    covered = sum(one.low <= 5.0 <= one.high for one in found if one.low is not None and one.high is not None)
    assert stats.binomtest(covered, len(found), 0.95).pvalue > 0.001


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_nothing_and_nan_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite values"):
        interval(values)


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_levels_are_probabilities(level: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        interval([1.0, 2.0], level)
