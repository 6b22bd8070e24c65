"""Paired differences between two configurations: over the seeds that both have, and over evaluation items.

Seeds are few, so their interval is Student's t. Items (sequences of the evaluation set) are many and far from normal,
so theirs is a BCa bootstrap (Efron 1987, by scipy) from a fixed seed. The first says whether training again could turn
the order round, the second whether other held-out data could. Neither allows for several comparisons; for that see
`orchestrator.contrasts`.
"""

import math
from collections.abc import Mapping
from statistics import fmean

from orchestrator.configurations import ConfigurationRecord
from orchestrator.records import TrialState
from orchestrator.replicates import same_for_all_seeds
from orchestrator.statistics import Interval, interval

RESAMPLES = 2000


def by_seed(one: ConfigurationRecord, baseline: ConfigurationRecord, metric: str) -> Interval | None:
    """A metric's mean minus the baseline's, paired by seed, with its t interval.

    With fewer than two common seeds it is the plain difference of means, without an interval; None where either has no
    value.
    """
    mine, theirs = values_by_seed(one, metric), values_by_seed(baseline, metric)
    common = [mine[seed] - theirs[seed] for seed in sorted(mine.keys() & theirs.keys())]
    if len(common) > 1 and not same_for_all_seeds(metric):
        return interval(common)
    if metric not in one.metrics or metric not in baseline.metrics:
        return None
    return Interval(one.metrics[metric].mean - baseline.metrics[metric].mean, None, None, 1)


def values_by_seed(one: ConfigurationRecord, metric: str) -> dict[int, float]:
    """A metric's finite values of the COMPLETE replicates; of two with the same seed, the later one's."""
    return {
        trial.seed: trial.metrics[metric]
        for trial in one.trials
        if trial.state is TrialState.COMPLETE and math.isfinite(trial.metrics.get(metric, math.nan))
    }


def by_item(one: Mapping[int, float], baseline: Mapping[int, float], level: float = 0.95) -> Interval | None:
    """The mean difference over items that both have, with its bootstrap interval; None without a common item.

    One item, or differences that are all equal, have no interval.
    """
    import numpy as np
    from scipy.stats import bootstrap  # half a second to import

    differences = [one[item] - baseline[item] for item in sorted(one.keys() & baseline.keys())]
    if not differences:
        return None
    mean = fmean(differences)
    if len(set(differences)) == 1:
        return Interval(mean, None, None, len(differences))
    found = bootstrap(
        (differences,), np.mean, confidence_level=level, n_resamples=RESAMPLES, method="BCa", rng=0
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high), len(differences))
