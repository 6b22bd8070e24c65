"""The pruner `median`: stops a trial that more than half of the earlier trials at its rung beat.

Another trial beats it by breaking constraints less, or, both being feasible, by a better non-dominated rank. With one
objective the trial is stopped when its cost is above the (upper) median of the earlier ones; with several, one that no
other dominates is never stopped. It is the careful choice: with three objectives most trials are hard to beat, and
`moasha` saves more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.pruning.order import ranks
from orchestrator.pruning.rung import RungEntry, entry_of, geometric_rungs

EARLIER = 4
"""Trials that must have been judged at a rung before one is stopped there."""


@dataclass(frozen=True, kw_only=True)
class MedianPruner:
    """Judges at `min_tokens * reduction_factor^k` tokens."""

    min_tokens: int
    reduction_factor: float

    def rungs(self, tokens_total: int) -> tuple[int, ...]:
        """Ascending, all below `tokens_total`."""
        return geometric_rungs(self.min_tokens, self.reduction_factor, tokens_total)

    def keeps(self, number: int, rung: int, entries: Sequence[RungEntry]) -> bool:  # noqa: ARG002
        """Whether at least half of the earlier trials do not beat this one, or too few are there."""
        own = entry_of(number, entries)
        earlier = [entry for entry in entries if entry is not own]
        if len(earlier) < EARLIER:
            return True
        return 2 * _beating(own, earlier) <= len(earlier)


def _beating(own: RungEntry, others: Sequence[RungEntry]) -> int:
    """How many of the others beat `own`."""
    if own.violation > 0:
        return sum(other.violation < own.violation for other in others)
    feasible = [other.costs for other in others if other.violation == 0]
    rank = ranks(np.array([own.costs, *feasible]))
    return int((rank[1:] < rank[0]).sum())
