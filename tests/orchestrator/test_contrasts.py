"""Differences and margins against dummy-variable least squares, scipy's t-tests, and coverage counted by simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from orchestrator.contrasts import Contrasts, Design, critical_value

Rows = list[dict[int, float]]


def least_squares(rows: Rows, paired: bool) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Estimates' differences from configuration 0, their variances, s^2 and freedom, from dummy variables."""
    seeds = sorted({seed for row in rows for seed in row})
    cells = [(index, seed) for index, row in enumerate(rows) for seed in row]
    design = np.zeros((len(cells), len(rows) + (len(seeds) if paired else 0)))
    values = np.array([rows[index][seed] for index, seed in cells])
    for line, (index, seed) in enumerate(cells):
        design[line, index] = 1
        if paired:
            design[line, len(rows) + seeds.index(seed)] = 1
    inverse = np.linalg.pinv(design.T @ design)
    beta = inverse @ design.T @ values
    freedom = len(cells) - np.linalg.matrix_rank(design)
    residual = values - design @ beta
    variance = residual @ residual / freedom
    contrasts = np.zeros((len(rows), design.shape[1]))
    contrasts[:, 0] -= 1
    contrasts[np.arange(len(rows)), np.arange(len(rows))] += 1
    return contrasts @ beta, np.diag(contrasts @ inverse @ contrasts.T) * variance, variance, int(freedom)


@pytest.mark.parametrize("seed", range(12))
def test_estimates_and_margins_are_those_of_least_squares(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows: Rows = [
        {0: random.normal()} | {s: random.normal() for s in range(1, 5) if random.random() < 0.6}
        for _ in range(random.integers(3, 9))
    ]
    found = Contrasts(rows)
    differences, variances, variance, freedom = least_squares(rows, found.design.paired)
    np.testing.assert_allclose(found.estimates - found.estimates[0], differences, atol=1e-10)
    np.testing.assert_allclose(found.design.variance_factors(0) * found.deviation**2, variances, atol=1e-10)
    assert found.deviation**2 == pytest.approx(variance)
    assert found.design.freedom == freedom


def test_both_kinds_occur_in_the_test_above_and_gaps_too() -> None:
    paired = {Design(np.ones((4, 3))).paired, Design(np.array([[1.0, 1, 1, 1], [1, 0, 0, 0]])).paired}
    assert paired == {True, False}


@pytest.mark.parametrize("seeds", [2, 3, 6])
def test_two_configurations_with_the_same_seeds_are_the_paired_t_test(seeds: int) -> None:
    random = np.random.default_rng(seeds)
    shared = random.normal(0, 5, seeds)
    a, b = shared + random.normal(0, 1, seeds), shared + random.normal(0.7, 1, seeds)
    found = Contrasts([dict(enumerate(a)), dict(enumerate(b))])
    critical = critical_value(found.design.freedom, 0.95, 1)
    margin = found.margins(0, critical)[1]
    expected = stats.ttest_rel(b, a).confidence_interval(0.95)
    difference = found.estimates[1] - found.estimates[0]
    assert (difference - margin, difference + margin) == pytest.approx((expected.low, expected.high))


def test_unequal_seeds_of_two_configurations_are_the_pooled_t_test() -> None:
    a, b = [1.0, 2.0, 4.0, 3.5], [5.0]
    found = Contrasts([dict(enumerate(a)), dict(enumerate(b))])
    assert not found.design.paired
    s = np.std(a, ddof=1)
    assert found.margins(0, 1.0)[1] == pytest.approx(s * math.sqrt(1 / 4 + 1))


def test_one_seed_each_knows_nothing_of_the_noise() -> None:
    found = Contrasts([{0: 1.0}, {0: 2.0}])
    assert found.design.freedom == 0
    assert math.isinf(found.margins(0, critical_value(0, 0.95, 1))[1])
    assert found.margins(0, critical_value(0, 0.95, 1))[0] == 0.0


def test_configurations_that_no_seed_links_cannot_be_compared_when_paired() -> None:
    rows: Rows = [{0: 1.0, 1: 1.5}, {0: 2.0, 1: 2.4}, {2: 1.0, 3: 1.1}, {2: 5.0, 3: 5.1}]
    found = Contrasts(rows)
    assert found.design.paired
    assert math.isinf(found.margins(0, 2.0)[2])
    assert math.isfinite(found.margins(0, 2.0)[1])


def test_more_seeds_are_a_design_with_further_columns() -> None:
    before = Design(np.ones((2, 3)))
    after = before.with_more_seeds([0, 1], 3)
    assert after.freedom == Design(np.ones((2, 6))).freedom
    assert after.variance_factors(0)[1] == pytest.approx(2 / 6)


@pytest.mark.parametrize(("noise_of_seeds", "gaps"), [(0.0, False), (3.0, False), (1.0, True)])
def test_simultaneous_intervals_hold_together_as_often_as_they_say(noise_of_seeds: float, gaps: bool) -> None:
    random, covered, studies = np.random.default_rng(1), 0, 400
    for _ in range(studies):
        truth, shared = random.normal(size=4), noise_of_seeds * random.normal(size=4)
        rows = [
            {s: truth[i] + shared[s] + random.normal() for s in range(4) if s < 1 or not gaps or random.random() < 0.7}
            for i in range(4)
        ]
        found = Contrasts(rows)
        critical = critical_value(found.design.freedom, 0.9, 6)
        errors = [
            abs((found.estimates - found.estimates[i]) - (truth - truth[i])) <= found.margins(i, critical) + 1e-12
            for i in range(4)
        ]
        covered += bool(np.all(errors))
    assert stats.binomtest(covered, studies, 0.9, alternative="less").pvalue > 0.001


def test_the_critical_value_is_students() -> None:
    assert critical_value(7, 0.95, 1) == pytest.approx(stats.t.ppf(0.975, 7))
    assert critical_value(7, 0.95, 10) == pytest.approx(stats.t.ppf(1 - 0.0025, 7))
    assert math.isinf(critical_value(0, 0.95, 1))
