"""Replicates grouped into configurations: means with intervals, feasibility, and the Pareto front of a study."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import isfinite
from statistics import fmean
from typing import Any

from orchestrator.records import Objective, StudyRecord, TrialRecord, TrialState
from orchestrator.replicates import same_for_all_seeds
from orchestrator.statistics import Interval, interval


@dataclass(frozen=True, kw_only=True)
class ConfigurationRecord:
    """One configuration with all its replicates."""

    fingerprint: str
    params: Mapping[str, Any]
    """The searched parameters that apply to it."""
    knobs: Mapping[str, Any]
    """The whole resolved configuration, flat."""
    trials: tuple[TrialRecord, ...]
    """By number, whatever became of them."""
    metrics: Mapping[str, Interval]
    """Over its COMPLETE trials, or what is known of the others while there is none. What replicates share is one value,
    without an interval."""
    feasible: bool
    """Whether the mean of no constraint's amount is positive."""
    complete: bool
    """Whether at least one trial is COMPLETE, so that it has objective values."""
    on_front: bool
    """Whether no feasible, complete configuration is at least as good in every objective and better in one."""


class Grouping:
    """The configurations of one study at successive moments: only what changed since the last time is worked out.

    Trials are compared by identity: a reader that follows a study (`orchestrator.followed_study`) hands out the same
    record while a trial stays as it is. Not for several threads at once.
    """

    def __init__(self) -> None:
        self._trials: tuple[TrialRecord, ...] = ()
        self._replicates: dict[str, dict[int, TrialRecord]] = {}
        self._known: dict[str, ConfigurationRecord] = {}
        self._front: set[str] = set()

    def group(self, study: StudyRecord) -> list[ConfigurationRecord]:
        """The configurations in the order in which they were asked, those on the front marked.

        A configuration that stands as before is the same object as before.
        """
        if not _continues(self._trials, study.trials):
            self._forget()
        touched = self._take(study.trials)
        for fingerprint in touched:
            self._known[fingerprint] = _configuration(list(self._replicates[fingerprint].values()))
        front = self._front_after(touched, study.objectives)
        for fingerprint in (front ^ self._front) | (front & touched):
            self._known[fingerprint] = _marked(self._known[fingerprint], fingerprint in front)
        self._front = front
        return list(self._known.values())

    def _forget(self) -> None:
        """As if no study had been seen yet."""
        self._trials, self._replicates, self._known, self._front = (), {}, {}, set()

    def _take(self, trials: tuple[TrialRecord, ...]) -> Set[str]:
        """Sort in the trials that are not as they were; the configurations that they belong to, in their order."""
        changed = [now for before, now in zip_longest(self._trials, trials) if before is not now]
        for trial in changed:
            self._replicates.setdefault(trial.configuration, {})[trial.number] = trial
        self._trials = trials
        return dict.fromkeys(trial.configuration for trial in changed).keys()

    def _front_after(self, touched: Set[str], objectives: Sequence[Objective]) -> set[str]:
        """The front now. What a point that still stands dominated before is dominated still, and not looked at."""
        looked_at = self._known.keys() if touched & self._front else self._front | touched
        candidates = [one for each in looked_at if (one := self._known[each]).complete and one.feasible]
        best = pareto_front([_costs(one, objectives) for one in candidates])
        return {candidates[index].fingerprint for index in best}


def group(study: StudyRecord) -> list[ConfigurationRecord]:
    """The study's configurations in the order in which they were asked, those on the front marked."""
    return Grouping().group(study)


def front(study: StudyRecord) -> list[ConfigurationRecord]:
    """The configurations on the Pareto front over the means of the objectives."""
    return [configuration for configuration in group(study) if configuration.on_front]


def pareto_front(costs: Sequence[Sequence[float]]) -> set[int]:
    """Positions of the points that none dominates; every cost is to be small, and equal points are all kept."""
    if not costs:
        return set()
    if len(costs[0]) == 1:  # moocore compares from two objectives on
        least = min(cost[0] for cost in costs)
        return {index for index, cost in enumerate(costs) if cost[0] == least}
    import moocore
    import numpy as np

    return set(np.flatnonzero(moocore.is_nondominated(np.array(costs, dtype=float), keep_weakly=True)).tolist())


def _costs(configuration: ConfigurationRecord, objectives: Iterable[Objective]) -> tuple[float, ...]:
    return tuple(
        configuration.metrics[objective.metric].mean * (1 if objective.direction == "minimize" else -1)
        for objective in objectives
    )


def _continues(before: Sequence[TrialRecord], now: Sequence[TrialRecord]) -> bool:
    """Whether these may be the same trials some time later: none is gone, and each has the place it had."""
    return len(before) <= len(now) and all(
        old is new or (old.number, old.configuration) == (new.number, new.configuration)
        for old, new in zip(before, now, strict=False)
    )


def _configuration(trials: Sequence[TrialRecord]) -> ConfigurationRecord:
    complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    judged = complete or trials
    return ConfigurationRecord(
        fingerprint=trials[0].configuration,
        params=trials[0].params,
        knobs=trials[0].knobs,
        trials=tuple(trials),
        metrics={
            name: _over_seeds(name, values) for name, values in _columns([trial.metrics for trial in judged]).items()
        },
        feasible=all(fmean(amounts) <= 0 for amounts in _columns([trial.violations for trial in judged]).values()),
        complete=bool(complete),
        on_front=False,
    )


def _over_seeds(name: str, values: Sequence[float]) -> Interval:
    if len(values) == 1 and isfinite(values[0]):  # as below, without the detour: most of a large study are these
        return Interval(float(values[0]), None, None, 1)
    return Interval(fmean(values), None, None, 1) if same_for_all_seeds(name) else interval(values)


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    if len(rows) == 1:
        return {name: [value] for name, value in rows[0].items()}
    columns: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return columns


def _marked(one: ConfigurationRecord, on_front: bool) -> ConfigurationRecord:
    return one if one.on_front == on_front else replace(one, on_front=on_front)
