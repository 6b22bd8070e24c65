"""Delivers entries to one study's MLflow experiment, and makes its runs equal the study's record.

Used by one thread at a time: the tracker's background thread, or the tracker's caller while that thread is idle.
Entries of one run that come together cost no more than three requests: make or find the run, log, end. What MLflow
holds already is not written again, so that an entry may be delivered twice, and a study of thousands of trials that
are right costs a search.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.records import StudyRecord, TrialState
from orchestrator.tracking import projection, updates
from orchestrator.tracking.entry import Entry, Reported, RunUpdate
from orchestrator.tracking.mlflow_connection import is_transient
from orchestrator.tracking.mlflow_runs import MlflowRuns
from orchestrator.tracking.tracked_run import MetricPoint, Point, RunStatus, TrackedRun

PARENT_TAG = "mlflow.parentRunId"


@dataclass
class _Known:
    """What MLflow holds of a run that may still change."""

    run_id: str = ""
    """Empty until the run is made."""
    status: RunStatus = RunStatus.RUNNING
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Final metrics that need not be written again."""
    curves: set[str] = field(default_factory=set)
    """Metrics reported during training."""
    step: int | None = 0
    """The last step reported; None when nobody has looked."""


class MlflowProjection:
    """One study's parent run and its trials' runs. Memory: the id of every run, and more of those that run."""

    def __init__(
        self, open_store: Callable[[], MlflowRuns], loop_table: Callable[[int], str | None] = lambda _number: None
    ) -> None:
        """`open_store` connects; it is called with the first delivery, and again while it fails.

        `loop_table` gives the loop diagnostics of a trial, as text, if there are any.
        """
        self._open_store, self._loop_table = open_store, loop_table
        self._opened: MlflowRuns | None = None
        self._ids: dict[int | None, str] = {}
        """By trial number; the study's own run under None."""
        self._known: dict[int | None, _Known] = {}
        self._searched = False
        """Whether every run that there is has its id in `_ids`."""

    @property
    def store(self) -> MlflowRuns:
        """The study's runs, connected to when first used."""
        if self._opened is None:
            self._opened = self._open_store()
        return self._opened

    def deliver(self, entries: Sequence[Entry], moved: Callable[[], None]) -> None:
        """Write entries, run by run, those of one run in their order."""
        by_run: dict[int | None, list[Entry]] = {}
        for entry in entries:
            by_run.setdefault(entry.number, []).append(entry)
        try:
            for number, group in by_run.items():
                self._deliver_run(number, group)
                moved()
        except Exception as error:
            if self._opened is not None and not is_transient(error):
                self._opened.require_usable()
            raise

    def reconcile(self, study: StudyRecord, owned: Collection[int], time: int, moved: Callable[[], None]) -> None:
        """Make the runs equal the record, at a time in milliseconds; see the protocol."""
        self._known.clear()
        wrong = self._adopt(study, owned, time, moved)
        for trial in study.trials:
            run_id = self._ids.get(trial.number)
            if trial.number in owned:
                self.deliver([updates.trial_started(trial, time)], moved)
            elif trial.state is not TrialState.WAITING and (run_id is None or trial.number in wrong):
                self.deliver([updates.trial_ended(trial, time, self._loop_table(trial.number))], moved)

    def run_id(self, number: int) -> str | None:
        """The run of a trial, if it has one."""
        return self._ids.get(number)

    def _adopt(self, study: StudyRecord, owned: Collection[int], time: int, moved: Callable[[], None]) -> set[int]:
        """Learn which run each trial has, and which trials' runs are not as they should be.

        One run is kept per trial, the richest; others go to the trash. Runs of unknown trials only end.
        """
        trials = {trial.number: trial for trial in study.trials}
        kept: dict[int, int] = {}
        wrong: set[int] = set()
        spare: list[str] = []
        for number in trials:
            self._ids.pop(number, None)
        for run in self.store.find("trial"):
            moved()
            trial = trials.get(run.number) if run.number is not None else None
            if trial is None or _contradicts(run.tags, projection.identity_tags(trial)):
                self._kill(run, time)
                continue
            if trial.number in kept and kept[trial.number] >= len(run.metrics):
                spare.append(run.run_id)
                continue
            if trial.number in kept:
                spare.append(self._ids[trial.number])
                wrong.discard(trial.number)
            kept[trial.number] = len(run.metrics)
            self._ids[trial.number] = run.run_id
            if trial.state is TrialState.WAITING:
                self._kill(run, time)
            elif trial.number not in owned and not _shows(run, updates.trial_ended(trial, time)):
                wrong.add(trial.number)
        for run_id in spare:
            self.store.end(run_id, RunStatus.KILLED, time)
            self.store.client.delete_run(run_id)
        self._searched = True
        return wrong

    def _deliver_run(self, number: int | None, entries: Sequence[Entry]) -> None:
        said = [entry for entry in entries if isinstance(entry, RunUpdate)]
        run = self._known.get(number) or self._found(number, said) or _Known()
        points = self._points(run, entries)
        params = {name: value for update in said for name, value in update.params.items()}
        tags = {name: value for update in said for name, value in {**update.identity, **update.tags}.items()}
        if said and said[-1].status.ended and run.curves:
            tags[projection.CURVES] = ",".join(sorted(run.curves))
        if not run.run_id:
            self._make(number, run, said, tags)
        missing = {name: value for name, value in params.items() if name not in run.params}
        changed = {name: value for name, value in tags.items() if run.tags.get(name) != value}
        self.store.log(run.run_id, metrics=points, params=missing, tags=changed)
        run.params.update(missing)
        run.tags.update(changed)
        for name, text in {name: text for update in said for name, text in update.texts.items()}.items():
            self.store.client.log_text(run.run_id, text, name)
        if said:
            self._set_status(number, run, said[-1])

    def _points(self, known: _Known, entries: Sequence[Entry]) -> list[MetricPoint]:
        """The points of reports and final metrics; final ones lie at the last step, so that they are the latest."""
        points: list[MetricPoint] = []
        step = self._last_step(known) if known.step is None else known.step
        for entry in entries:
            if isinstance(entry, Reported):
                metrics = projection.report_metrics(entry.report)
                step = max(step, entry.report.step)
                known.curves.update(metrics)
                points += _at(entry.report.step, metrics, entry.time)
            else:
                final = {name: value for name, value in entry.metrics.items() if known.metrics.get(name) != value}
                points += _at(step, final, entry.time)
        known.step = step
        return points

    def _set_status(self, number: int | None, run: _Known, update: RunUpdate) -> None:
        if update.status is not run.status:
            if update.status.ended:
                self.store.end(run.run_id, update.status, update.ended or update.time)
            else:
                self.store.resume(run.run_id)
            run.status = update.status
        if update.status.ended:
            self._known.pop(number, None)

    def _found(self, number: int | None, said: Sequence[RunUpdate]) -> _Known | None:
        """The run in MLflow; another configuration's run of that number is ended and left."""
        run = self._look_up(number)
        if run is None:
            return None
        if said and _contradicts(run.tags, said[0].identity):
            self._kill(run, said[0].time)
            return None
        self._ids[number] = run.run_id
        known = self._known[number] = _Known(
            run_id=run.run_id,
            status=run.status,
            params=dict(run.params),
            tags=dict(run.tags),
            metrics=run.metrics,
            curves=_reported(run),
            step=None,
        )
        return known

    def _look_up(self, number: int | None) -> TrackedRun | None:
        if number in self._ids:
            return self.store.get(self._ids[number])
        if number is None:
            return next(iter(self.store.find("study")), None)
        return None if self._searched else self.store.find_trial(number)

    def _make(self, number: int | None, run: _Known, said: Sequence[RunUpdate], tags: Mapping[str, str]) -> None:
        """A new run with its tags; when its start was lost, one that says no more than whose it is."""
        name = said[0].name if said else projection.run_name(number or 0)
        run.tags = {**said[0].origin, **tags} if said else {}
        if number is not None:
            run.tags |= {projection.KIND: "trial", projection.NUMBER: str(number), PARENT_TAG: self._parent()}
        run.run_id = self.store.create(name, run.tags, said[0].started if said else None)
        self._ids[number], self._known[number] = run.run_id, run

    def _parent(self) -> str:
        """The study's own run; a bare one when somebody deleted it under way."""
        if None not in self._ids:
            found = next(iter(self.store.find("study")), None)
            self._ids[None] = (
                found.run_id if found else self.store.create(self.store.study_name, {projection.KIND: "study"}, None)
            )
        return self._ids[None]

    def _last_step(self, known: _Known) -> int:
        curve = self.store.history(known.run_id, projection.TOKENS) if known.curves else []
        return curve[-1].step if curve else 0

    def _kill(self, run: TrackedRun, time: int) -> None:
        if not run.status.ended:
            self.store.end(run.run_id, RunStatus.KILLED, time)


def _at(step: int, metrics: Mapping[str, float], time: int) -> list[MetricPoint]:
    return [(name, Point(step, value, time / 1000)) for name, value in metrics.items()]


def _reported(run: TrackedRun) -> set[str]:
    """Metrics that a run got during training: it says so once it ended, and until then has no others."""
    listed = run.tags.get(projection.CURVES)
    if listed is not None:
        return set(listed.split(","))
    return set() if projection.STATE in run.tags else set(run.metrics)


def _contradicts(present: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether a tag is there with another value."""
    return any(present.get(name, value) != value for name, value in wanted.items())


def _shows(run: TrackedRun, update: RunUpdate) -> bool:
    """Whether a run is as an update would leave it."""
    pairs = (
        (run.tags, update.tags),
        (run.tags, update.identity),
        (run.params, update.params),
        (run.metrics, update.metrics),
    )
    return run.status is update.status and all(
        present.get(name) == value for present, wanted in pairs for name, value in wanted.items()
    )
