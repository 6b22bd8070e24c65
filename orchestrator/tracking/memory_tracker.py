"""A tracker that keeps its runs in this process.

For tests, and for studies that should leave no trace outside their own storage. It shows what the MLflow tracker
shows, through the same read side: `runs`, `parent` and `history`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from orchestrator.records import StudyRecord, TrialRecord, TrialState
from orchestrator.tracking import projection
from orchestrator.tracking.provenance import provenance_tags
from orchestrator.tracking.tracked_run import Point, RunStatus, TrackedRun, latest_per_step
from workers.protocol import MetricReport


@dataclass
class _Run:
    run_id: str
    number: int | None
    tags: dict[str, str]
    started: datetime
    status: RunStatus = RunStatus.RUNNING
    params: dict[str, str] = field(default_factory=dict)
    final: dict[str, float] = field(default_factory=dict)
    history: dict[str, list[Point]] = field(default_factory=dict)
    ended: datetime | None = None

    def end(self, status: RunStatus, ended: datetime) -> None:
        self.status, self.ended = status, ended

    def record(self) -> TrackedRun:
        latest = {name: latest_per_step(points)[-1].value for name, points in self.history.items()}
        return TrackedRun(
            run_id=self.run_id,
            number=self.number,
            status=self.status,
            params=dict(self.params),
            metrics={**latest, **self.final},
            tags=dict(self.tags),
            started=self.started,
            ended=self.ended,
        )


class MemoryTracker:
    """One study's runs, in memory."""

    def __init__(self, study_name: str, clock: Callable[[], float] = time.time) -> None:
        self.study_name = study_name
        self._clock = clock
        self._parent: _Run | None = None
        self._runs: dict[int, _Run] = {}

    def start_study(self, study: StudyRecord) -> None:
        """Find or make the parent run."""
        parent = self._open_parent(study)
        parent.tags |= projection.study_tags(study)
        parent.status, parent.ended = RunStatus.RUNNING, None

    def start_trial(self, trial: TrialRecord) -> None:
        """Find or make the trial's run and mark it running."""
        run = self._runs.get(trial.number)
        if run is None:
            run_id = f"{self.study_name}/{projection.run_name(trial.number)}"
            run = self._runs[trial.number] = _Run(run_id, trial.number, {}, trial.started or self._now())
        run.tags |= {**provenance_tags(), **projection.identity_tags(trial)}
        run.params |= projection.trial_params(trial)
        run.status, run.ended = RunStatus.RUNNING, None

    def report(self, number: int, report: MetricReport) -> None:
        """Add a report's metrics at its step."""
        history = self._runs[number].history
        for name, value in projection.report_metrics(report).items():
            history.setdefault(name, []).append(Point(report.step, value, self._clock()))

    def finish_trial(self, trial: TrialRecord) -> None:
        """Write final metrics and tags, and end the run."""
        if trial.number not in self._runs:
            self.start_trial(trial)
        run = self._runs[trial.number]
        run.final |= projection.final_metrics(trial)
        run.tags |= projection.outcome_tags(trial)
        run.end(projection.end_status(trial), trial.ended or self._now())

    def finish_study(self, study: StudyRecord) -> None:
        """Write the counts and end the parent run and whatever still runs."""
        self._kill_running()
        parent = self._open_parent(study)
        parent.tags |= projection.study_tags(study)
        parent.final |= projection.study_metrics(study)
        parent.end(projection.study_status(study), self._now())

    def reconcile(self, study: StudyRecord, owned: Sequence[int] = ()) -> None:
        """Make the runs equal the record; see the protocol."""
        known = {trial.number: trial for trial in study.trials}
        for trial in known.values():
            if trial.number in owned:
                self.start_trial(trial)
            elif trial.state is not TrialState.WAITING:
                self.finish_trial(trial)
        self._kill_running(except_for=owned)

    def close(self) -> None:
        """Nothing is ever under way."""

    def runs(self) -> list[TrackedRun]:
        """Every trial's run, by number."""
        return [self._runs[number].record() for number in sorted(self._runs)]

    def parent(self) -> TrackedRun | None:
        """The study's own run, once it was started."""
        return None if self._parent is None else self._parent.record()

    def history(self, number: int, metric: str) -> list[Point]:
        """A metric's curve, one point per step; empty when it was never reported."""
        return latest_per_step(self._runs[number].history.get(metric, []))

    def _open_parent(self, study: StudyRecord) -> _Run:
        if self._parent is None:
            tags = {projection.KIND: "study", **provenance_tags()}
            self._parent = _Run(f"{self.study_name}/study", None, tags, study.created or self._now())
        return self._parent

    def _kill_running(self, except_for: Sequence[int] = ()) -> None:
        for number, run in self._runs.items():
            if not run.status.ended and number not in except_for:
                run.end(RunStatus.KILLED, self._now())

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)
