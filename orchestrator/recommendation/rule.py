"""The rule: the smallest loop count from which no larger one pays.

Going from R to R' > R pays when the best configuration with R' is better than the best with R by more than
(R' - R) * worth. Every larger loop count is compared, not only the next one: quality need not be monotone in R (PLT
found R = 3 best, LoopCoder-v2 found R = 3 worse than R = 1).

The best of several configurations looks better than it is. So the gain has bounds that allow for the choice: with
simultaneous intervals [L, U] of all differences between configurations,

    max_b min_a L(b - a)  <=  max_b value_b - max_a value_a  <=  max_b min_a U(b - a)        a with R, b with R'

and whatever is concluded from these bounds is right whenever the intervals hold, which they do together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.contrasts import (
    Contrasts,
    Design,
    Matrix,
    critical_value,
    factors_of,
    fewest_seeds,
    level_of,
    margins,
)
from orchestrator.recommendation.answer import Bounds, Verdict

_LARGEST = 1e6
_HALVINGS = 60


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
    deviation: float
    worth: float
    """Per loop added."""

    @classmethod
    def of(cls, loops: Sequence[int], contrasts: Contrasts, sign: float, worth: float) -> "LoopGains":
        """`sign` is -1 where the objective is to be small."""
        goodness = sign * contrasts.estimates
        return cls(tuple(loops), goodness, contrasts.factors, contrasts.design.freedom, contrasts.deviation, worth)

    @property
    def counts(self) -> list[int]:
        """The loop counts that there are, ascending."""
        return sorted(set(self.loops))

    @property
    def comparisons(self) -> int:
        """Pairs of configurations with different loop counts."""
        sizes = [self.loops.count(count) for count in self.counts]
        return (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2

    def critical(self, level: float) -> float:
        """Half-width in standard errors at a simultaneous level."""
        return critical_value(self.freedom, level, self.comparisons)

    def gain(self, few: int, many: int, critical: float) -> Bounds:
        """Of the best with `many` loops over the best with `few`."""
        rows, columns = self._members(many), self._members(few)
        differences = self.goodness[rows][:, None] - self.goodness[columns]
        wide = margins(self.factors[np.ix_(rows, columns)], self.deviation, critical)
        return Bounds(
            estimate=float(differences.min(axis=1).max()),
            low=float((differences - wide).min(axis=1).max()),
            high=float((differences + wide).min(axis=1).max()),
        )

    def verdict(self, few: int, many: int, critical: float) -> Verdict:
        """Whether going from `few` loops to `many` pays."""
        bounds, needed = self.gain(few, many, critical), self.needed(few, many)
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
            if not any(
                self.gain(count, larger, 0.0).estimate > self.needed(count, larger) for larger in self._above(count)
            )
        )

    def certain(self, answer: int, critical: float) -> bool:
        """Whether the bounds leave no other answer."""
        stays = all(self.verdict(answer, larger, critical) is Verdict.NO_GAIN for larger in self._above(answer))
        return stays and all(
            any(self.verdict(count, larger, critical) is Verdict.PAYS for larger in self._above(count))
            for count in self.counts
            if count < answer
        )

    def confidence(self, answer: int) -> float:
        """The highest simultaneous level at which the answer is certain, 0 where it never is."""
        if self.certain(answer, _LARGEST):
            return 1.0
        low, high = 0.0, _LARGEST
        if not self.certain(answer, low):
            return 0.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.certain(answer, middle) else (low, middle)
        return level_of(self.freedom, low, self.comparisons)

    def unsettled(self, answer: int, level: float) -> list[int]:
        """Positions of the configurations whose further seeds can still change the answer.

        They could be the best of their loop count as far as is known, and a comparison that is not settled is about
        that loop count.
        """
        critical = self.critical(level)
        open_counts: set[int] = set()
        for larger in self._above(answer):
            if self.verdict(answer, larger, critical) is not Verdict.NO_GAIN:
                open_counts |= {answer, larger}
        for count in (each for each in self.counts if each < answer):
            verdicts = {larger: self.verdict(count, larger, critical) for larger in self._above(count)}
            if Verdict.PAYS not in verdicts.values():
                open_counts |= {count, *(each for each, one in verdicts.items() if one is Verdict.UNDECIDED)}
        return [index for count in sorted(open_counts) for index in self.not_worse(count, critical, 0.0)]

    def not_worse(self, count: int, critical: float, tolerance: float) -> list[int]:
        """Configurations of a loop count that are not surely worse than its best by more than `tolerance`, the best
        first; with a `critical` of 0, by the estimates alone."""
        members = sorted(self._members(count), key=lambda index: -self.goodness[index])
        wide = margins(self.factors[members[0], members], self.deviation, critical)
        behind = self.goodness[members[0]] - self.goodness[members]
        return [index for index, ok in zip(members, behind <= tolerance + wide, strict=True) if ok]

    def further_seeds(self, design: Design, answer: int, level: float, configurations: Sequence[int]) -> int | None:
        """Fewest further seeds of these configurations that would make the answer certain, if the estimates and the
        noise stay as they are; None beyond `MOST_SEEDS`."""
        return fewest_seeds(lambda seeds: self._settled_by(design, answer, level, configurations, seeds))

    def _settled_by(self, design: Design, answer: int, level: float, configurations: Sequence[int], seeds: int) -> bool:
        after = design.with_more_seeds(configurations, seeds)
        then = LoopGains(self.loops, self.goodness, factors_of(after), after.freedom, self.deviation, self.worth)
        return then.certain(answer, then.critical(level))

    def _members(self, count: int) -> list[int]:
        return [index for index, loops in enumerate(self.loops) if loops == count]

    def _above(self, count: int) -> list[int]:
        return [each for each in self.counts if each > count]
