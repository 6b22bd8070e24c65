"""What must hold of a finished study, whatever happened on the way. Every breach is one line."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import psutil
from mlflow.entities import Run
from optuna.trial import TrialState as OptunaState

from harness.driver import processes_of
from harness.outside import Curve, Place, Replicate, Truth, exact
from orchestrator.records import StudyRecord, StudyState, TrialRecord, TrialState

_DYING_SECONDS = 60.0
"""For what the driver has told to end."""
_SUCCEEDED = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What is known beforehand."""

    truth: Mapping[Replicate, Truth]
    """From an unbroken run of the same study."""
    configurations: int
    """The budget."""
    kept: Mapping[int, TrialRecord]
    """Trials that had finished when the fault came."""
    points_may_miss: bool = False
    """Whether curves may have gaps, because no disk took their points."""


def breaches(place: Place, expected: Expected) -> list[str]:
    """Everything that is not as it must be."""
    record = place.record()
    return [
        *_study(record, expected),
        *_finished_trials_are_kept(record, expected),
        *_values(place, record, expected),
        *_attempts(record),
        *_optuna(place, record),
        *_runs(place, record, expected),
        *_remains(place),
    ]


def _study(record: StudyRecord, expected: Expected) -> Iterator[str]:
    if record.state is not StudyState.COMPLETE:
        yield f"the study is {record.state}: {record.message}"
    if record.driver is not None:
        yield f"{record.driver} still drives the study"
    known = {trial.configuration for trial in record.trials}
    if len(known) != expected.configurations:
        yield f"{len(known)} configurations for a budget of {expected.configurations}"
    counts = Counter((trial.configuration, trial.seed) for trial in record.trials)
    for replicate, count in counts.items():
        if count > 1:
            yield f"{replicate} was counted {count} times"
    for replicate in counts.keys() ^ expected.truth.keys():
        yield f"{replicate} is in only one of this study and an unbroken one"


def _finished_trials_are_kept(record: StudyRecord, expected: Expected) -> Iterator[str]:
    now = {trial.number: trial for trial in record.trials}
    for number, before in expected.kept.items():
        if now.get(number) != before:
            yield f"trial {number} was finished and changed from {before} to {now.get(number)}"


def _values(place: Place, record: StudyRecord, expected: Expected) -> Iterator[str]:
    for trial in record.trials:
        truth = expected.truth.get((trial.configuration, trial.seed))
        if truth is None:
            continue
        stand, wanted = (trial.state.value, trial.stopped_at), (truth.state.value, truth.stopped_at)
        if stand != wanted:
            yield f"trial {trial.number} is {stand}, an unbroken one {wanted}"
        metrics = {name: value for name, value in trial.metrics.items() if exact(name)}
        if metrics != truth.metrics:
            yield f"trial {trial.number} has {metrics}, an unbroken one {truth.metrics}"
        model, said = place.model(trial), "checkpoint" in trial.attempts[-1].info if trial.attempts else False
        if model != truth.model and not (model == "" and said):
            yield f"trial {trial.number} has other final weights than an unbroken one"


def _attempts(record: StudyRecord) -> Iterator[str]:
    for trial in record.trials:
        if [attempt.number for attempt in trial.attempts] != list(range(1, len(trial.attempts) + 1)):
            yield f"trial {trial.number} has attempts {[attempt.number for attempt in trial.attempts]}"
        if any(attempt.ended is None for attempt in trial.attempts):
            yield f"trial {trial.number} has an attempt that never ended"
        if trial.state in _SUCCEEDED and (not trial.attempts or trial.attempts[-1].failure is not None):
            yield f"trial {trial.number} is {trial.state} although its last attempt failed"


def _optuna(place: Place, record: StudyRecord) -> Iterator[str]:
    stored = {trial.number: trial for trial in place.optuna_trials()}
    if stored.keys() != {trial.number for trial in record.trials}:
        yield f"Optuna has trials {sorted(stored)}, the record {[trial.number for trial in record.trials]}"
    for trial in record.trials:
        found = stored.get(trial.number)
        if found is None:
            continue
        if found.state not in (OptunaState.COMPLETE, OptunaState.PRUNED, OptunaState.FAIL):
            yield f"trial {trial.number} is {found.state.name} in Optuna"
        if found.state.name != trial.state.value or (trial.values or None) != (
            tuple(found.values) if found.state is OptunaState.COMPLETE else None
        ):
            yield f"trial {trial.number} is {found.state.name} with {found.values} in Optuna"


def _runs(place: Place, record: StudyRecord, expected: Expected) -> Iterator[str]:
    runs = place.runs()
    parents = [run for run in runs if run.data.tags.get("plt.kind") == "study"]
    children = {run.data.tags["plt.trial"]: run for run in runs if run.data.tags.get("plt.kind") == "trial"}
    if len(parents) != 1 or len(runs) != 1 + len(children):
        yield f"{len(runs)} runs in MLflow, {len(parents)} of them the study's, for {len(record.trials)} trials"
    for run in runs:
        if run.info.status != "FINISHED":
            yield f"MLflow's {run.info.run_name} is {run.info.status}"
    for trial in record.trials:
        run = children.pop(str(trial.number), None)
        if run is None:
            yield f"trial {trial.number} has no run in MLflow"
            continue
        if parents and run.data.tags.get("mlflow.parentRunId") != parents[0].info.run_id:
            yield f"the run of trial {trial.number} has another parent"
        yield from _run(place, trial, run, expected)
    for number in children:
        yield f"MLflow has a run of trial {number}, which there is not"


def _run(place: Place, trial: TrialRecord, run: Run, expected: Expected) -> Iterator[str]:
    if {name: run.data.metrics.get(name) for name in trial.metrics} != trial.metrics:
        yield f"trial {trial.number} has metrics {dict(trial.metrics)}, its run {run.data.metrics}"
    truth = expected.truth.get((trial.configuration, trial.seed))
    curves = place.curves(run)
    if truth is None:
        return
    # Final metrics lie at the last step that arrived: where the last report is missing, at an earlier one.
    misplaced = _last_step(curves) if expected.points_may_miss and _last_step(curves) < _last_step(truth.curves) else -1
    for name, curve in truth.curves.items():
        found = curves.get(name, {})
        lost = sorted(curve.keys() - found.keys())
        if lost and not expected.points_may_miss:
            yield f"the run of trial {trial.number} has no {name} at steps {lost}"
        other = sorted(step for step in found if found[step] != curve.get(step) and step != misplaced)
        if other:
            values = {step: found[step] for step in other}
            yield f"the run of trial {trial.number} has {name} unlike an unbroken one at steps {values}"


def _last_step(curves: Mapping[str, Curve]) -> int:
    return max((step for curve in curves.values() for step in curve), default=0)


def _remains(place: Place) -> Iterator[str]:
    left = place.half_written()
    if left:
        yield f"left behind: {', '.join(map(str, left))}"
    if place.home.spool(place.name).exists():
        yield "not everything was delivered to MLflow"
    _, alive = psutil.wait_procs(processes_of(place.home.root), timeout=_DYING_SECONDS)
    for process in alive:
        yield f"process {process.pid} is left: {' '.join(process.cmdline())[:120]}"
