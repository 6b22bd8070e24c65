"""Trials beside each other: the knobs in which they differ, and every metric with its interval over seeds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.configurations import group
from orchestrator.home import Home
from orchestrator.records import StudyRecord, TrialRecord
from orchestrator.statistics import Interval, interval
from orchestrator.studies import read_study
from orchestrator.trial_name import find_trial, parse_trial_name


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Columns are trials, in the order given; the first is the baseline."""

    trials: tuple[str, ...]
    """`STUDY/NUMBER` of each."""
    differing_knobs: Mapping[str, tuple[Any, ...]]
    """Knob to one value per trial; knobs in which all agree are left out."""
    metrics: Mapping[str, tuple[Interval | None, ...]]
    """Metric to one interval per trial (over the seeds of its configuration), None where it was not measured."""

    def to_plain(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "trials": list(self.trials),
            "differing_knobs": {name: list(values) for name, values in self.differing_knobs.items()},
            "metrics": {
                name: [None if one is None else asdict(one) for one in intervals]
                for name, intervals in self.metrics.items()
            },
        }


def compare(home: Home, names: Sequence[str]) -> Comparison:
    """Compare trials named as `STUDY/NUMBER`."""
    studies: dict[str, StudyRecord] = {}
    found: list[tuple[StudyRecord, TrialRecord]] = []
    for name in names:
        study_name, number = parse_trial_name(name)
        study = studies.setdefault(study_name, read_study(home, study_name))
        found.append((study, find_trial(study, number)))
    trials = [trial for _, trial in found]
    by_metric = [_intervals(study, trial) for study, trial in found]
    metrics = sorted({metric for intervals in by_metric for metric in intervals})
    return Comparison(
        trials=tuple(names),
        differing_knobs=_differing(trials),
        metrics={metric: tuple(intervals.get(metric) for intervals in by_metric) for metric in metrics},
    )


def _differing(trials: Iterable[TrialRecord]) -> dict[str, tuple[Any, ...]]:
    columns = [{**trial.knobs, **trial.params} for trial in trials]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = {name: tuple(column.get(name) for column in columns) for name in names}
    return {name: values for name, values in rows.items() if len({repr(value) for value in values}) > 1}


def _intervals(study: StudyRecord, trial: TrialRecord) -> Mapping[str, Interval]:
    """Over the seeds of the trial's configuration; a trial without finished replicates stands alone."""
    for configuration in group(study):
        if configuration.fingerprint == trial.configuration and configuration.complete:
            return configuration.metrics
    return {name: interval([value]) for name, value in trial.metrics.items()}
