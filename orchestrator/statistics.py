"""Mean and confidence interval over replicates: Student's t, for a handful of seeds from a roughly normal metric."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import stdtrit


@dataclass(frozen=True)
class Interval:
    """A mean with the interval that covers the true mean at the level it was made for."""

    mean: float
    low: float | None
    """None with fewer than two values: one value says nothing about its spread."""
    high: float | None
    n: int
    """Number of values."""


def interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Student's t interval of the mean: mean +- t(n - 1, (1 + level) / 2) * s / sqrt(n).

    Raises `ValueError` for no values, for one that is not finite, and for a level outside (0, 1).
    """
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"an interval needs one or more finite values, and got {list(values)!r}")
    if not 0 < level < 1:
        raise ValueError(f"level is {level!r}; it must be between 0 and 1")
    mean, n = fmean(values), len(values)
    if n < 2:
        return Interval(mean=mean, low=None, high=None, n=n)
    margin = float(stdtrit(n - 1, (1 + level) / 2)) * stdev(values) / math.sqrt(n)
    return Interval(mean=mean, low=mean - margin, high=mean + margin, n=n)
