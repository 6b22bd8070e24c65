"""Which configurations are on a study's Pareto front as far as the data can tell: front, dominated or undecided.

An objective that replicates share is compared exactly. One with noise is compared by the intervals of
`orchestrator.contrasts`, wide enough for all pairs and noisy objectives together. Then, with certainty at that level,

    dominated   some configuration is surely no worse in every objective and surely better in one
    front       no configuration can be that: each is surely worse in one objective, or is no better in any
    undecided   everything else; further seeds may tell

Equal in every objective is not dominated, as in `orchestrator.configurations`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from orchestrator.configurations import ConfigurationRecord, group
from orchestrator.contrasts import Contrasts, Design, Matrix, critical_value, fewest_seeds, margins
from orchestrator.paired import values_by_seed
from orchestrator.records import Objective, StudyRecord
from orchestrator.replicates import same_for_all_seeds


class Membership(StrEnum):
    """Where a configuration stands."""

    FRONT = "front"
    DOMINATED = "dominated"
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A configuration's membership, and what would settle it."""

    membership: Membership
    rivals: tuple[str, ...] = ()
    """Fingerprints of the configurations that may dominate an undecided one."""
    further_seeds: int | None = None
    """Further seeds of it and its rivals that would settle an undecided one, if what was measured so far stays as it
    is; None where the noise is unknown or more than `contrasts.MOST_SEEDS` would be needed."""


@dataclass(frozen=True)
class _Noisy:
    """One objective with noise, turned so that small is better."""

    costs: Matrix
    design: Design
    deviation: float


def memberships(study: StudyRecord, level: float = 0.95) -> dict[str, Standing]:
    """By fingerprint, of every complete configuration that breaks no constraint; intervals hold together at `level`."""
    able = [one for one in group(study) if one.complete and one.feasible and _has_values(one, study.objectives)]
    if not able:
        return {}
    exact = [objective for objective in study.objectives if same_for_all_seeds(objective.metric)]
    noisy = [objective for objective in study.objectives if not same_for_all_seeds(objective.metric)]
    known = np.array([[_sign(one) * each.metrics[one.metric].mean for one in exact] for each in able])
    unknown = [_noisy(able, objective) for objective in noisy]
    comparisons = len(able) * (len(able) - 1) // 2 * max(1, len(noisy))
    board = _Board(known.reshape(len(able), len(exact)), unknown, level, comparisons)
    return {
        one.fingerprint: board.standing(index, [each.fingerprint for each in able]) for index, one in enumerate(able)
    }


def _noisy(able: Sequence[ConfigurationRecord], objective: Objective) -> _Noisy:
    contrasts = Contrasts([values_by_seed(one, objective.metric) for one in able])
    return _Noisy(_sign(objective) * contrasts.estimates, contrasts.design, contrasts.deviation)


def _has_values(one: ConfigurationRecord, objectives: Sequence[Objective]) -> bool:
    return all(values_by_seed(one, objective.metric) for objective in objectives)


def _sign(objective: Objective) -> float:
    return 1.0 if objective.direction == "minimize" else -1.0


@dataclass(frozen=True)
class _Board:
    """All configurations' costs, compared with one of them at a time."""

    exact: Matrix
    """(N, number of exact objectives)."""
    noisy: Sequence[_Noisy]
    level: float
    comparisons: int

    def standing(self, index: int, fingerprints: Sequence[str]) -> Standing:
        """Of the configuration at `index`."""
        membership, rivals = self._judge(index, [one.design for one in self.noisy])
        if membership is not Membership.UNDECIDED:
            return Standing(membership=membership)
        return Standing(
            membership=membership,
            rivals=tuple(fingerprints[rival] for rival in rivals),
            further_seeds=self._further_seeds(index, rivals),
        )

    def _judge(self, index: int, designs: Sequence[Design]) -> tuple[Membership, list[int]]:
        """Membership with the seeds of these designs, and who may dominate it."""
        no_worse, better, surely_no_worse, surely_better = self._against(index, designs)
        if (surely_no_worse & surely_better).any():
            return Membership.DOMINATED, []
        rivals = np.flatnonzero(no_worse & better)
        return (Membership.UNDECIDED if len(rivals) else Membership.FRONT), [int(rival) for rival in rivals]

    def _against(self, index: int, designs: Sequence[Design]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of every other configuration: may it be no worse everywhere, may it be better somewhere, is it surely."""
        behind = self.exact[index] - self.exact
        no_worse = (behind >= 0).all(axis=1)
        better = (behind > 0).any(axis=1)
        surely_no_worse, surely_better = no_worse.copy(), better.copy()
        for one, design in zip(self.noisy, designs, strict=True):
            behind = one.costs[index] - one.costs
            critical = critical_value(design.freedom, self.level, self.comparisons)
            wide = margins(design.variance_factors(index), one.deviation, critical)
            no_worse &= behind + wide >= 0
            better |= behind + wide > 0
            surely_no_worse &= behind - wide >= 0
            surely_better |= behind - wide > 0
        others = np.arange(len(self.exact)) != index
        return no_worse & others, better & others, surely_no_worse & others, surely_better & others

    def _further_seeds(self, index: int, rivals: Sequence[int]) -> int | None:
        if any(one.design.freedom == 0 for one in self.noisy):
            return None

        def settled(seeds: int) -> bool:
            designs = [one.design.with_more_seeds([index, *rivals], seeds) for one in self.noisy]
            return self._judge(index, designs)[0] is not Membership.UNDECIDED

        return fewest_seeds(settled)


def counts(standings: Mapping[str, Standing]) -> dict[Membership, int]:
    """How many configurations stand where."""
    return {each: sum(one.membership is each for one in standings.values()) for each in Membership}
