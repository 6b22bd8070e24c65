"""Which configurations deserve another seed: those whose place the data has not decided yet.

Seeds are replicates. Spending one on a configuration that is clearly dominated changes nothing, so only the others get
more, the front first. Clearly dominated means: some configuration on the front is better in every noisy objective by
more than chance explains and no worse in every exact one. Chance is judged by a t-test on the difference of two means
with the variance pooled over all configurations that have several seeds,

    margin_j = t(df, 0.975) * s_j * sqrt(1 / n_a + 1 / n_b),    s_j^2 = sum of squared deviations / df

Before any configuration has a second seed nothing is known of the noise, and nothing is clearly dominated by it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from orchestrator.configurations import pareto_front

_LEVEL = 0.975
"""Of the one-sided quantile: a two-sided test at 5 %."""


@dataclass(frozen=True, kw_only=True)
class Replicated:
    """A configuration that has values."""

    fingerprint: str
    costs: tuple[tuple[float, ...], ...]
    """One row per COMPLETE seed, one column per objective, each turned so that small is better."""
    seeds: int
    """Seeds that it was asked with, those included that still run."""


def worth_another_seed(
    configurations: Sequence[Replicated], exact: Sequence[bool], *, everyone: bool = False
) -> list[str]:
    """Fingerprints of the configurations that are not clearly dominated, or of `everyone`, the most urgent first.

    `exact` says of each objective whether it is the same for every seed. The front comes first, and within it and
    behind it whoever was asked with fewer seeds; ties keep the given order.
    """
    if not configurations:
        return []
    means = np.array([np.mean(one.costs, axis=0) for one in configurations])
    counts = np.array([len(one.costs) for one in configurations])
    spread = _margin_per_root(configurations, exact)
    front = pareto_front([tuple(row) for row in means.tolist()])
    best = np.array(sorted(front))
    ranks = {
        one.fingerprint: (index not in front, one.seeds, index)
        for index, one in enumerate(configurations)
        if everyone
        or index in front
        or not _clearly_dominated(means[index], counts[index], means[best], counts[best], spread)
    }
    return sorted(ranks, key=lambda fingerprint: ranks[fingerprint])


def _clearly_dominated(
    mean: np.ndarray, count: int, best_means: np.ndarray, best_counts: np.ndarray, spread: np.ndarray
) -> bool:
    margin = spread[None, :] * np.sqrt(1 / count + 1 / best_counts)[:, None]
    better_by = mean - best_means
    exact = spread == 0
    clear = np.where(exact[None, :], better_by >= 0, better_by > margin).all(axis=1)
    strictly = (better_by > 0).any(axis=1)
    return bool((clear & strictly).any())


def _margin_per_root(configurations: Sequence[Replicated], exact: Sequence[bool]) -> np.ndarray:
    """`t * s` of each objective: zero where it is exact, infinite where its noise is not known yet."""
    squares, freedom = np.zeros(len(exact)), 0
    for one in configurations:
        if len(one.costs) > 1:
            rows = np.array(one.costs)
            squares += ((rows - rows.mean(axis=0)) ** 2).sum(axis=0)
            freedom += len(one.costs) - 1
    if freedom == 0:
        return np.where(exact, 0.0, math.inf)
    return np.where(exact, 0.0, float(stdtrit(freedom, _LEVEL)) * np.sqrt(squares / freedom))
