"""A tracker that keeps its runs in this process.

For tests, and for studies that should leave no trace outside their own storage. It shows what the MLflow tracker
shows, through the same read side: `runs`, `parent` and `history`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from orchestrator.records import StudyRecord, TrialRecord, TrialState
from orchestrator.tracking import projection, updates
from orchestrator.tracking.entry import RunUpdate
from orchestrator.tracking.tracked_run import Point, RunStatus, TrackedRun, latest_per_step
from workers.protocol import MetricReport


@dataclass
class _Run:
    run_id: str
    number: int | None
    tags: dict[str, str]
    started: int
    status: RunStatus = RunStatus.RUNNING
    params: dict[str, str] = field(default_factory=dict)
    final: dict[str, float] = field(default_factory=dict)
    history: dict[str, list[Point]] = field(default_factory=dict)
    ended: int | None = None

    def record(self) -> TrackedRun:
        latest = {name: latest_per_step(points)[-1].value for name, points in self.history.items()}
        return TrackedRun(
            run_id=self.run_id,
            number=self.number,
            status=self.status,
            params=dict(self.params),
            metrics={**latest, **self.final},
            tags=dict(self.tags),
            started=_moment(self.started),
            ended=None if self.ended is None else _moment(self.ended),
        )


class MemoryTracker:
    """One study's runs, in memory."""

    def __init__(self, study_name: str, clock: Callable[[], float] = time.time) -> None:
        self.study_name = study_name
        self._clock = clock
        self._runs: dict[int | None, _Run] = {}
        """By trial number; the study's own run under None."""

    def start_study(self, study: StudyRecord) -> None:
        """Find or make the parent run."""
        self._apply(updates.study_started(study, self._now()))

    def start_trial(self, trial: TrialRecord) -> None:
        """Find or make the trial's run and mark it running."""
        self._apply(updates.trial_started(trial, self._now()))

    def report(self, number: int, report: MetricReport) -> None:
        """Add a report's metrics at its step."""
        history = self._runs[number].history
        for name, value in projection.report_metrics(report).items():
            history.setdefault(name, []).append(Point(report.step, value, self._clock()))

    def finish_trial(self, trial: TrialRecord) -> None:
        """Write final metrics and tags, and end the run."""
        self._apply(updates.trial_ended(trial, self._now()))

    def finish_study(self, study: StudyRecord) -> None:
        """Write the counts and end the parent run and whatever still runs."""
        self._kill_running()
        self._apply(updates.study_ended(study, self._now()))

    def reconcile(self, study: StudyRecord, owned: Sequence[int] = ()) -> None:
        """Make the runs equal the record; see the protocol."""
        for trial in study.trials:
            if trial.number in owned:
                self.start_trial(trial)
            elif trial.state is not TrialState.WAITING:
                self.finish_trial(trial)
        self._kill_running(except_for=owned)

    def close(self) -> None:
        """Nothing is ever under way."""

    def runs(self) -> list[TrackedRun]:
        """Every trial's run, by number."""
        return [self._runs[number].record() for number in sorted(key for key in self._runs if key is not None)]

    def parent(self) -> TrackedRun | None:
        """The study's own run, once it was started."""
        return self._runs[None].record() if None in self._runs else None

    def history(self, number: int, metric: str) -> list[Point]:
        """A metric's curve, one point per step; empty when it was never reported."""
        return latest_per_step(self._runs[number].history.get(metric, []))

    def _apply(self, update: RunUpdate) -> None:
        run = self._runs.get(update.number)
        if run is None:
            made = {**update.origin, **update.identity}
            run = self._runs[update.number] = _Run(
                f"{self.study_name}/{update.name}", update.number, made, update.started
            )
        run.tags |= update.tags
        run.params |= update.params
        run.final |= update.metrics
        run.status, run.ended = update.status, update.ended

    def _kill_running(self, except_for: Sequence[int] = ()) -> None:
        for number, run in self._runs.items():
            if number is not None and not run.status.ended and number not in except_for:
                run.status, run.ended = RunStatus.KILLED, self._now()

    def _now(self) -> int:
        return round(self._clock() * 1000)


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
