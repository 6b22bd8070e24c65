"""Replicates grouped into configurations: means with intervals, feasibility, and the Pareto front of a study."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
        self._known: dict[str, ConfigurationRecord] = {}

    def group(self, study: StudyRecord) -> list[ConfigurationRecord]:
        """The configurations in the order in which they were asked, those on the front marked.

        A configuration that stands as before is the same object as before.
        """
        replicates: dict[str, list[TrialRecord]] = {}
        for trial in study.trials:
            replicates.setdefault(trial.configuration, []).append(trial)
        configurations = [self._configuration(fingerprint, trials) for fingerprint, trials in replicates.items()]
        candidates = [one for one in configurations if one.complete and one.feasible]
        best = pareto_front([_costs(one, study.objectives) for one in candidates])
        on_front = {candidates[index].fingerprint for index in best}
        marked = [_marked(one, one.fingerprint in on_front) for one in configurations]
        self._known = {one.fingerprint: one for one in marked}
        return marked

    def _configuration(self, fingerprint: str, trials: list[TrialRecord]) -> ConfigurationRecord:
        known = self._known.get(fingerprint)
        if known is None or len(known.trials) != len(trials):
            return _configuration(trials)
        unchanged = all(before is now for before, now in zip(known.trials, trials, strict=True))
        return known if unchanged else _configuration(trials)


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


def _configuration(trials: Sequence[TrialRecord]) -> ConfigurationRecord:
    complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    judged = complete or trials
    return ConfigurationRecord(
        fingerprint=trials[0].configuration,
        params=trials[0].params,
        knobs=trials[0].knobs,
        trials=tuple(trials),
        metrics={
            name: Interval(fmean(values), None, None, 1) if same_for_all_seeds(name) else interval(values)
            for name, values in _columns(trial.metrics for trial in judged).items()
        },
        feasible=all(fmean(amounts) <= 0 for amounts in _columns(trial.violations for trial in judged).values()),
        complete=bool(complete),
        on_front=False,
    )


def _columns(rows: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    columns: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return columns


def _marked(one: ConfigurationRecord, on_front: bool) -> ConfigurationRecord:
    return one if one.on_front == on_front else replace(one, on_front=on_front)
