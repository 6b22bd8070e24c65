"""The rule: the smallest loop count from which no larger one pays; and when it is certain.

Going from R to R' > R pays when the best configuration with R' is better than the best with R by more than
(R' - R) * worth. Every larger loop count is compared, not only the next one: quality need not be monotone in R (PLT
found R = 3 best, LoopCoder-v2 found R = 3 worse than R = 1).

The best of several configurations looks better than it is, so the gain has bounds that allow for the choice:

    max_b min_a (b - a) - m   <=   max_b value_b - max_a value_a   <=   max_b min_a (b - a) + m'     a with R, b with R'

The answer r is certain when by the upper bounds no larger count pays from r, and by the lower bounds some larger one
pays from every smaller count. Let r0 be the true answer. A certain answer below r0 is wrong only if an upper bound
fails between it and the count that truly pays; one above r0 only if a lower bound from r0 fails. With C loop counts
those are C - 1 pairs of counts, whatever the answer. A lower bound of a pair fails only if, against the truly best of
the n_R configurations with R, some of the n_R' with R' looks better than it is by more than m: n_R' one-sided events.
An upper bound likewise: n_R events. So with one-sided Student quantiles

    m = t(1 - alpha / ((C - 1) n_R')) * standard error,     m' = t(1 - alpha / ((C - 1) n_R)) * standard error

the probability of a certain and wrong answer is at most alpha (Bonferroni). The noise is pooled over configurations;
a loop count whose own noise is larger counts with that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from orchestrator.contrasts import Contrasts, Design, Matrix, critical_value, factors_of, fewest_seeds, margins
from orchestrator.recommendation.answer import Bounds, Verdict

_SMALLEST_ALPHA = 1e-9
_HALVINGS = 50
_BY_ESTIMATES = 1.0
"""An alpha at which nothing is added to the estimates."""


@dataclass(frozen=True)
class LoopGains:
    """Gains between loop counts, from configurations' estimates turned so that large is better."""

    loops: tuple[int, ...]
    """Of each configuration."""
    goodness: Matrix
    """(N,)."""
    factors: Matrix
    """Variance factors of the differences (N, N)."""
    freedom: int
    deviations: Matrix
    """The noise of each configuration (N,); a difference is taken to be as noisy as the noisier of the two."""
    worth: float
    """Per loop added."""

    @classmethod
    def of(cls, loops: Sequence[int], contrasts: Contrasts, sign: float, worth: float) -> "LoopGains":
        """`sign` is -1 where the objective is to be small."""
        goodness = sign * contrasts.estimates
        noise = contrasts.deviations(loops)
        return cls(tuple(loops), goodness, contrasts.factors, contrasts.design.freedom, noise, worth)

    @property
    def counts(self) -> list[int]:
        """The loop counts that there are, ascending."""
        return sorted(set(self.loops))

    def gain(self, few: int, many: int, alpha: float) -> Bounds:
        """Of the best with `many` loops over the best with `few`, with bounds for an answer wrong at most `alpha`."""
        rows, columns = self._members(many), self._members(few)
        differences = self.goodness[rows][:, None] - self.goodness[columns]
        factors = self.factors[np.ix_(rows, columns)]
        noise = np.maximum.outer(self.deviations[rows], self.deviations[columns])
        below = margins(factors, noise, self._critical(alpha, len(rows)))
        above = margins(factors, noise, self._critical(alpha, len(columns)))
        return Bounds(
            estimate=float(differences.min(axis=1).max()),
            low=float((differences - below).min(axis=1).max()),
            high=float((differences + above).min(axis=1).max()),
        )

    def verdict(self, few: int, many: int, alpha: float) -> Verdict:
        """Whether going from `few` loops to `many` pays."""
        bounds, needed = self.gain(few, many, alpha), self.needed(few, many)
        if bounds.low > needed:
            return Verdict.PAYS
        return Verdict.NO_GAIN if bounds.high <= needed else Verdict.UNDECIDED

    def needed(self, few: int, many: int) -> float:
        """What the gain must be above."""
        return (many - few) * self.worth

    def answer(self) -> int:
        """By the estimates alone."""
        return next(
            count
            for count in self.counts
            if all(self.verdict(count, larger, _BY_ESTIMATES) is Verdict.NO_GAIN for larger in self._above(count))
        )

    def certain(self, answer: int, alpha: float) -> bool:
        """Whether the bounds leave no other answer."""
        stays = all(self.verdict(answer, larger, alpha) is Verdict.NO_GAIN for larger in self._above(answer))
        return stays and all(
            any(self.verdict(count, larger, alpha) is Verdict.PAYS for larger in self._above(count))
            for count in self.counts
            if count < answer
        )

    def confidence(self, answer: int) -> float:
        """One minus the smallest alpha at which the answer is certain; 0 where nothing is known of the noise."""
        if self.freedom == 0 or not self.certain(answer, _BY_ESTIMATES):
            return 0.0
        if self.certain(answer, _SMALLEST_ALPHA):
            return 1.0 - _SMALLEST_ALPHA
        low, high = np.log(_SMALLEST_ALPHA), 0.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.certain(answer, float(np.exp(middle))) else (middle, high)
        return float(1.0 - np.exp(high))

    def unsettled(self, answer: int, alpha: float) -> list[int]:
        """Positions of the configurations whose further seeds can still change the answer.

        They could be the best of their loop count as far as is known, and a comparison that is not settled is about
        that loop count.
        """
        open_counts: set[int] = set()
        for larger in self._above(answer):
            if self.verdict(answer, larger, alpha) is not Verdict.NO_GAIN:
                open_counts |= {answer, larger}
        for count in (each for each in self.counts if each < answer):
            verdicts = {larger: self.verdict(count, larger, alpha) for larger in self._above(count)}
            if Verdict.PAYS not in verdicts.values():
                open_counts |= {count, *(each for each, one in verdicts.items() if one is Verdict.UNDECIDED)}
        return [index for count in sorted(open_counts) for index in self.not_worse(count, alpha, 0.0)]

    def not_worse(self, count: int, alpha: float, tolerance: float) -> list[int]:
        """Configurations of a loop count that are not surely worse than its best by more than `tolerance`, the best
        first; with an `alpha` of 1, by the estimates alone."""
        members = sorted(self._members(count), key=lambda index: -self.goodness[index])
        critical = 0.0 if alpha == _BY_ESTIMATES else critical_value(self.freedom, 1 - alpha, len(members) - 1)
        noise = np.maximum(self.deviations[members[0]], self.deviations[members])
        wide = margins(self.factors[members[0], members], noise, critical)
        behind = self.goodness[members[0]] - self.goodness[members]
        return [index for index, ok in zip(members, behind <= tolerance + wide, strict=True) if ok]

    def further_seeds(self, design: Design, answer: int, alpha: float, configurations: Sequence[int]) -> int | None:
        """Fewest further seeds of these configurations that would make the answer certain, if the estimates and the
        noise stay as they are; None where even many would not."""

        def settled(seeds: int) -> bool:
            after = design.with_more_seeds(configurations, seeds)
            then = replace(self, factors=factors_of(after), freedom=after.freedom)
            return then.certain(answer, alpha)

        return fewest_seeds(settled)

    def _critical(self, alpha: float, choices: int) -> float:
        """A one-sided quantile, in standard errors; infinite while nothing is known of the noise."""
        if alpha >= _BY_ESTIMATES:
            return 0.0
        if self.freedom == 0:
            return float("inf")
        share = alpha / (max(1, len(self.counts) - 1) * choices)
        return max(0.0, float(stdtrit(self.freedom, 1 - share)))

    def _members(self, count: int) -> list[int]:
        return [index for index, loops in enumerate(self.loops) if loops == count]

    def _above(self, count: int) -> list[int]:
        return [each for each in self.counts if each > count]
