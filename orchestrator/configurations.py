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


def group(study: StudyRecord) -> list[ConfigurationRecord]:
    """The study's configurations in the order in which they were asked, those on the front marked."""
    replicates: dict[str, list[TrialRecord]] = {}
    for trial in study.trials:
        replicates.setdefault(trial.configuration, []).append(trial)
    configurations = [_configuration(trials) for trials in replicates.values()]
    candidates = [one for one in configurations if one.complete and one.feasible]
    best = pareto_front([_costs(one, study.objectives) for one in candidates])
    on_front = {candidates[index].fingerprint for index in best}
    return [replace(one, on_front=one.fingerprint in on_front) for one in configurations]


def front(study: StudyRecord) -> list[ConfigurationRecord]:
    """The configurations on the Pareto front over the means of the objectives."""
    return [configuration for configuration in group(study) if configuration.on_front]


def pareto_front(costs: Sequence[Sequence[float]]) -> set[int]:
    """Positions of the points that none dominates; every cost is to be small, and equal points are all kept.

    In lexicographic order a point can only be dominated by one before it, and if so then by one on the front.
    """
    best: list[int] = []
    for index in sorted(range(len(costs)), key=lambda position: tuple(costs[position])):
        if not any(_dominates(costs[other], costs[index]) for other in best):
            best.append(index)
    return set(best)


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    return tuple(one) != tuple(other) and all(a <= b for a, b in zip(one, other, strict=True))


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
