"""Writes one study's record into its MLflow experiment, synchronously and idempotently.

Used by one thread at a time: the tracker's background thread, or the tracker's caller while that thread is idle. What
is written already is remembered, so that saying it again costs nothing.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from orchestrator.export import study_summary
from orchestrator.records import StudyRecord, TrialRecord, TrialState
from orchestrator.tracking import projection
from orchestrator.tracking.flusher import MetricPoint
from orchestrator.tracking.mlflow_runs import MlflowRuns
from orchestrator.tracking.provenance import provenance_tags
from orchestrator.tracking.tracked_run import Point, RunStatus, TrackedRun

PARENT_TAG = "mlflow.parentRunId"


class MlflowProjection:
    """One study's parent run and its trials' runs, as they were last written or read."""

    def __init__(self, store: MlflowRuns) -> None:
        self._store = store
        self._parent: TrackedRun | None = None
        self._runs: dict[int, TrackedRun] = {}
        self._steps: dict[int, dict[str, int]] = {}
        """Trial number to the last step of every metric that was reported in this process."""

    def open_study(self, study: StudyRecord) -> None:
        """Find or make the parent run, store the spec, and learn which trials have runs."""
        self._store.created = study.created.isoformat() if study.created else None
        parent = next(iter(self._store.find("study")), None)
        if parent is None:
            tags = {projection.KIND: "study", **provenance_tags()}
            parent = self._store.create(study.name, tags, study.created)
        elif parent.status.ended:
            self._store.resume(parent.run_id)
        self._parent = parent
        self._store.log(parent.run_id, tags=projection.study_tags(study))
        self._store.client.log_dict(parent.run_id, dict(study.spec), "spec.json")
        for run in self._store.find("trial"):
            if run.number is not None and not _richer(self._runs.get(run.number), run):
                self._runs[run.number] = run

    def start(self, trial: TrialRecord) -> None:
        """Find or make the trial's run and mark it running."""
        run = self._run_of(trial)
        if run.status.ended:
            self._store.resume(run.run_id)
            self._runs[trial.number] = replace(run, status=RunStatus.RUNNING)

    def add_metrics(self, number: int, points: list[MetricPoint]) -> None:
        """Add points to a trial's curves."""
        self._store.log(self._runs[number].run_id, metrics=points)
        steps = self._steps.setdefault(number, {})
        for name, point in points:
            steps[name] = max(point.step, steps.get(name, 0))

    def finish(self, trial: TrialRecord) -> None:
        """Write final metrics, tags and traceback, and end the run."""
        run = self._run_of(trial)
        tags, metrics = projection.outcome_tags(trial), projection.final_metrics(trial)
        if steps := self._steps.get(trial.number):
            tags[projection.CURVES] = ",".join(sorted(steps))
        status = projection.end_status(trial)
        if run.status is status and not steps and _holds(run.tags, tags) and _holds(run.metrics, metrics):
            return
        step, now = self._last_step(trial.number, run), time.time()
        changed = {name: value for name, value in metrics.items() if run.metrics.get(name) != value}
        points = [(name, Point(step, value, now)) for name, value in changed.items()]
        self._store.log(run.run_id, metrics=points, tags=tags)
        if trial.failure and trial.failure.get("traceback"):
            self._store.client.log_text(run.run_id, trial.failure["traceback"], "traceback.txt")
        self._store.end(run.run_id, status, trial.ended)
        self._steps.pop(trial.number, None)
        self._runs[trial.number] = replace(
            run, status=status, tags={**run.tags, **tags}, metrics={**run.metrics, **metrics}
        )

    def finish_study(self, study: StudyRecord) -> None:
        """Write the summary, kill what still runs, and end the parent run."""
        if self._parent is None:
            self.open_study(study)
        assert self._parent is not None
        for number, run in self._runs.items():
            if not run.status.ended:
                self._runs[number] = self._killed(run)
        now = time.time()
        points = [(name, Point(0, value, now)) for name, value in projection.study_metrics(study).items()]
        self._store.log(self._parent.run_id, metrics=points, tags=projection.study_tags(study))
        self._store.client.log_dict(self._parent.run_id, study_summary(study), "summary.json")
        self._store.end(self._parent.run_id, projection.study_status(study))

    def reconcile(self, study: StudyRecord, owned: Collection[int]) -> None:
        """Make the runs equal the record."""
        if self._parent is None:
            self.open_study(study)
        self._adopt(study)
        for trial in study.trials:
            if trial.number in owned:
                self.start(trial)
            elif trial.state is not TrialState.WAITING:
                self.finish(trial)
            elif (run := self._runs.get(trial.number)) is not None and not run.status.ended:
                self._runs[trial.number] = self._killed(run)

    def run_id(self, number: int) -> str | None:
        """The run of a trial, if it has one."""
        return self._runs[number].run_id if number in self._runs else None

    def _adopt(self, study: StudyRecord) -> None:
        """Keep one run per trial; duplicates go to the trash, runs of unknown trials only end."""
        trials = {trial.number: trial for trial in study.trials}
        self._runs.clear()
        for run in self._store.find("trial"):
            trial = trials.get(run.number) if run.number is not None else None
            if trial is None or not _holds(run.tags, projection.identity_tags(trial)):
                self._killed(run)
                continue
            kept = self._runs.get(trial.number)
            self._runs[trial.number] = kept if kept is not None and _richer(kept, run) else run
            if kept is not None:
                spare = run if _richer(kept, run) else kept
                self._killed(spare)
                self._store.client.delete_run(spare.run_id)

    def _run_of(self, trial: TrialRecord) -> TrackedRun:
        """The trial's run with its parameters, made when there is none; another study's run of that number is left."""
        run = self._runs.get(trial.number)
        identity = projection.identity_tags(trial)
        if run is not None and not _holds(run.tags, identity):
            self._killed(run)
            run = None
        if run is None:
            parent = {PARENT_TAG: self._parent.run_id} if self._parent is not None else {}
            tags = {**provenance_tags(), **identity, **parent}
            run = self._store.create(projection.run_name(trial.number), tags, trial.started)
            self._runs[trial.number] = run
        params = projection.trial_params(trial)
        if missing := {name: value for name, value in params.items() if name not in run.params}:
            self._store.log(run.run_id, params=missing)
            self._runs[trial.number] = run = replace(run, params={**missing, **run.params})
        return run

    def _killed(self, run: TrackedRun) -> TrackedRun:
        if run.status.ended:
            return run
        self._store.end(run.run_id, RunStatus.KILLED)
        return replace(run, status=RunStatus.KILLED)

    def _last_step(self, number: int, run: TrackedRun) -> int:
        """The step of the last report, in this process or before it; final metrics are written there."""
        if steps := self._steps.get(number):
            return max(steps.values())
        curve = self._store.history(run.run_id, projection.TOKENS)
        return curve[-1].step if curve else 0


def _richer(run: TrackedRun | None, other: TrackedRun) -> bool:
    """Whether a run knows at least as many metrics as another."""
    return run is not None and len(run.metrics) >= len(other.metrics)


def _holds(present: Mapping[str, object], wanted: Mapping[str, object]) -> bool:
    """Whether every wanted entry is present with that value."""
    return all(present.get(name) == value for name, value in wanted.items())
