"""The seam between a study and what stops its weak trials early, and the pruner that a study file asks for.

A pruner is a pure function of what it is handed: the same entries in the same order give the same decision, in any
process. It keeps no state, so a study that was stopped and continued prunes as an unbroken one.

The driver's part: a trial is judged at each of its rungs, at the first evaluation that has seen at least so many
tokens. One evaluation may pass several rungs: the trial is then judged at each of them, in ascending order. A trial
that is judged at a rung again (a new attempt) replaces its earlier entry. An objective that is not known at a rung is
left out of every entry there; with none known, nothing is judged. Failed trials leave no entries.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from orchestrator.pruning.median_pruner import MedianPruner
from orchestrator.pruning.moasha import Moasha
from orchestrator.pruning.no_pruner import NoPruner
from orchestrator.pruning.rung import RungEntry
from workers.config import TrainConfig

if TYPE_CHECKING:
    from orchestrator.spec import StudySpec

RUNGS = 3
"""Rungs of the longest trial when the study names no first one, which is then its tokens / `reduction_factor^RUNGS`."""


class Pruner(Protocol):
    """Decides which trials go on."""

    def rungs(self, tokens_total: int) -> tuple[int, ...]:
        """Training-token counts at which a trial of `tokens_total` is judged: ascending, distinct, all below it."""
        ...

    def keeps(self, number: int, rung: int, entries: Sequence[RungEntry]) -> bool:
        """Whether trial `number` goes on after the rung at `rung` tokens.

        `entries` are all trials judged at that rung so far, in the order in which they came, this one among them, one
        entry per trial. Raises a `ValueError` without an entry of `number`.
        """
        ...


def make_pruner(spec: "StudySpec") -> Pruner:
    """The pruner that a study asks for."""
    section = spec.pruner
    factor = section.reduction_factor
    first = section.min_tokens or max(1, round(_longest(spec) / factor**RUNGS))
    if section.name == "moasha":
        return Moasha(min_tokens=first, reduction_factor=factor, brackets=section.brackets, seed=spec.sampler.seed)
    if section.name == "median":
        return MedianPruner(min_tokens=first, reduction_factor=factor)
    return NoPruner()


def _longest(spec: "StudySpec") -> int:
    """Training tokens of the longest trial: one first rung for all, so that trials of any length are comparable."""
    searched = spec.search.get("tokens")
    if searched is not None:
        return int(max(searched.ends()))
    return spec.train.tokens or TrainConfig().tokens
