"""Differences between configurations from their seeds, with margins that hold for many comparisons together.

A value is taken as configuration + seed + noise. Replicates share their seed's data order, so the seed's part is
removed where enough seeds are shared ("paired by seed"); with each configuration on the same seeds that is the paired
difference. Noise is one variance, pooled over all configurations, because a handful of seeds of one configuration
says little about its own. Standard least squares for two-way tables with gaps (Searle, Linear Models, 1971, ch. 7):

    M[i, s] = 1 where configuration i has seed s;  D = diag of its seeds;  z_i = M_i / n_i
    C = diag(column sums of M) - M' D^-1 M;   t = C^+ (column sums of Y - M' row means)
    value_i = row mean_i - z_i . t
    var(value_j - value_i) = s^2 (1 / n_i + 1 / n_j + (z_j - z_i)' C^+ (z_j - z_i))

Pairing costs degrees of freedom, so it is done only where at least half of the unpaired ones stay; that depends on
which seeds were run and not on what came of them. Pure numpy; needs no study.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Matrix = NDArray[np.float64]
_NOT_COMPARABLE = 1e-9
MOST_SEEDS = 64
"""Further seeds that are looked ahead."""


class Design:
    """Which configuration was run with which seed; what can be known from that before any value is seen."""

    def __init__(self, incidence: Matrix) -> None:
        """`incidence` (N, S): 1 where a configuration has a seed, else 0; every row has at least one."""
        self.incidence = incidence
        self.seeds = incidence.sum(axis=1)
        self._shares = incidence / self.seeds[:, None]
        information = np.diag(incidence.sum(axis=0)) - incidence.T @ self._shares
        self._inverse = np.linalg.pinv(information, rcond=1e-10, hermitian=True)
        self._reach = information @ self._inverse
        unpaired = int(incidence.sum()) - len(incidence)
        paired = unpaired - int(np.linalg.matrix_rank(information, tol=1e-9, hermitian=True))
        self.paired = paired >= unpaired / 2 and paired > 0
        """Whether the seeds' part is removed."""
        self.freedom = paired if self.paired else unpaired
        """Degrees of freedom of the noise; 0 while no configuration has a second seed."""

    def seed_parts(self, values: Matrix) -> Matrix:
        """Each seed's part (S,) of `values` (N, S), whose gaps are 0; zeros when seeds are not paired."""
        if not self.paired:
            return np.zeros(values.shape[1])
        means = values.sum(axis=1) / self.seeds
        parts: Matrix = self._inverse @ (values.sum(axis=0) - self.incidence.T @ means)
        return parts

    def variance_factors(self, index: int) -> Matrix:
        """var(value_j - value_index) / s^2 for every j (N,); infinite where no shared seed links the two."""
        factors: Matrix = 1 / self.seeds[index] + 1 / self.seeds
        if self.paired:
            apart = self._shares - self._shares[index]
            factors = factors + np.einsum("js,st,jt->j", apart, self._inverse, apart)
            unreached = np.abs(apart - apart @ self._reach).max(axis=1) > _NOT_COMPARABLE
            factors = np.where(unreached, math.inf, factors)
        factors[index] = 0.0
        return factors

    def with_more_seeds(self, configurations: Sequence[int], count: int) -> "Design":
        """The same design after `count` further seeds of some configurations, the same seeds for all of them."""
        further = np.zeros((len(self.incidence), count))
        further[list(configurations)] = 1.0
        return Design(np.hstack([self.incidence, further]))


class Contrasts:
    """Estimates of configurations' values and how well differences between them are known."""

    def __init__(self, rows: Sequence[Mapping[int, float]]) -> None:
        """One mapping from seed to value per configuration; none may be empty."""
        seeds = sorted({seed for row in rows for seed in row})
        table = np.array([[row.get(seed, math.nan) for seed in seeds] for row in rows], dtype=np.float64)
        present = ~np.isnan(table)
        self.design = Design(present.astype(np.float64))
        values = np.where(present, table, 0.0)
        parts = self.design.seed_parts(values)
        self.estimates: Matrix = (values - present * parts).sum(axis=1) / self.design.seeds
        residuals = (values - self.estimates[:, None] - parts)[present]
        freedom = self.design.freedom
        self.deviation = math.sqrt(float(residuals @ residuals) / freedom) if freedom else math.inf
        """s, the noise of one value; infinite while nothing is known of it."""
        self._squares = np.zeros(len(rows))
        np.add.at(self._squares, np.nonzero(present)[0], residuals**2)

    def deviations(self, groups: Sequence[object]) -> Matrix:
        """The noise of each configuration (N,): s, or that of its group alone where that is larger.

        Noise may differ between groups, such as loop counts. The smaller estimates are not trusted below the pooled
        one, because few seeds often come out alike by chance.
        """
        found = np.full(len(groups), self.deviation)
        unpaired = float(self.design.seeds.sum()) - len(groups)
        for group in dict.fromkeys(groups):
            members = np.array([each == group for each in groups])
            own = (float(self.design.seeds[members].sum()) - members.sum()) * self.design.freedom / max(1.0, unpaired)
            if own > 0:
                found[members] = max(self.deviation, math.sqrt(float(self._squares[members].sum()) / own))
        return found

    @cached_property
    def factors(self) -> Matrix:
        """Variance factors of all pairs (N, N)."""
        return factors_of(self.design)

    def margins(self, index: int, critical: float) -> Matrix:
        """critical * standard error of value_j - value_index, for every j (N,)."""
        factors = self.design.variance_factors(index)
        return margins(factors, self.deviation, critical)


def factors_of(design: Design) -> Matrix:
    """Variance factors of all pairs of a design (N, N)."""
    return np.array([design.variance_factors(index) for index in range(len(design.seeds))])


def margins(factors: Matrix, deviation: float | Matrix, critical: float) -> Matrix:
    """critical * deviation * sqrt(factors), with 0 where the factor or `critical` is 0."""
    if critical == 0:
        return np.zeros_like(factors)
    with np.errstate(invalid="ignore"):
        wide: Matrix = critical * deviation * np.sqrt(factors)
    return np.where(factors == 0, 0.0, np.nan_to_num(wide, nan=math.inf, posinf=math.inf))


def critical_value(freedom: int, level: float, comparisons: int) -> float:
    """Half-width in standard errors so that all of so many two-sided intervals hold together (Bonferroni)."""
    if freedom == 0:
        return math.inf
    return float(stdtrit(freedom, 1 - (1 - level) / (2 * max(1, comparisons))))


def fewest_seeds(settled: Callable[[int], bool]) -> int | None:
    """The fewest further seeds with which something is settled, given that more seeds settle no less; None beyond
    `MOST_SEEDS`."""
    low, high = 0, 1
    while not settled(high):
        if high >= MOST_SEEDS:
            return None
        low, high = high, min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settled(middle) else (middle, high)
    return high
