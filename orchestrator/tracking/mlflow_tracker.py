"""A tracker that projects a study into MLflow: one experiment, a parent run for the study, a child run per trial.

What is said is put on disk, in the study's folder, and carried from there by a background thread to a process that
imports MLflow, makes its database, writes and reconciles: the caller never waits for MLflow, however slow or absent it
is, and a killed driver loses nothing. What MLflow has not taken when `close` loses patience stays on disk; the next
driver of the study delivers it before anything else.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from orchestrator.errors import ServiceError
from orchestrator.home import Home
from orchestrator.loop_table import read_text
from orchestrator.records import StudyRecord, TrialRecord
from orchestrator.tracking import updates
from orchestrator.tracking.delivery import Moved
from orchestrator.tracking.entry import Reported
from orchestrator.tracking.flusher import Flusher
from orchestrator.tracking.mlflow_connection import require_durable, service_errors
from orchestrator.tracking.mlflow_process import MlflowProcess
from orchestrator.tracking.mlflow_runs import MlflowRuns
from orchestrator.tracking.spool import Spool
from orchestrator.tracking.tracked_run import Point, TrackedRun
from workers.protocol import MetricReport

_UP_TO_DATE = "bringing MLflow up to date"
LATE_SECONDS = 1.0
"""After failures, how long a service that nobody asks anything else has for requests that were given up."""


class MlflowTracker:
    """One study's runs in MLflow. Say `start_study` first; the study's driver lock must be held from then on."""

    def __init__(
        self, home: Home, study_name: str, clock: Callable[[], float] = time.time, patience: float = 20.0
    ) -> None:
        """Nothing is opened yet. `close` gives up after `patience` seconds without any progress.

        Raises:
            ServiceError: The tracking address is a database in memory.
        """
        require_durable(home)
        self.study_name = study_name
        self._home = home
        self._clock = clock
        self._patience = patience
        self._said = 0
        """When something was last said, in milliseconds since the epoch."""
        self._running: dict[int, TrialRecord] = {}
        self._created: str | None = None
        self._process: MlflowProcess | None = None
        self._opened: Flusher | None = None

    def start_study(self, study: StudyRecord) -> None:
        """Find or make the parent run, and store the resolved spec as its artifact `spec.json`.

        Raises:
            ServiceError: The study's folder cannot be written to.
        """
        if self._opened is None:
            self._created = study.created.isoformat() if study.created else None
            self._opened = self._open_flusher()
        self._opened.say(updates.study_started(study, self._now()))

    def start_trial(self, trial: TrialRecord) -> None:
        """Find or make the trial's run and mark it running."""
        self._running[trial.number] = trial
        self._flusher.say(updates.trial_started(trial, self._now()))

    def report(self, number: int, report: MetricReport) -> None:
        """Keep a report's metrics for MLflow."""
        self._flusher.say(Reported(number=number, time=self._now(), report=report))

    def finish_trial(self, trial: TrialRecord) -> None:
        """Write final metrics and tags, loop diagnostics and a traceback as artifacts, and end the run."""
        self._running.pop(trial.number, None)
        loops = read_text(self._home.loop_table(self.study_name, trial.number))
        self._flusher.say(updates.trial_ended(trial, self._now(), loops))

    def finish_study(self, study: StudyRecord) -> None:
        """Write the counts, end what still runs as KILLED, end the parent run; after failures make all runs right."""
        for trial in {**self._running, **self._still_running(study)}.values():
            self.finish_trial(trial)
        flusher, reconcile = self._flusher, self._reconciling(study, ())

        def make_right(moved: Moved) -> None:
            if flusher.doubtful:
                time.sleep(LATE_SECONDS)
                reconcile(moved)

        flusher.act(_UP_TO_DATE, make_right)
        flusher.say(updates.study_ended(study, self._now()))

    def reconcile(self, study: StudyRecord, owned: Sequence[int] = ()) -> None:
        """Make the runs equal the record, in the background; see the protocol. Duplicates also go to the trash."""
        self._flusher.act(_UP_TO_DATE, self._reconciling(study, owned))

    def close(self) -> None:
        """Wait until everything said has arrived; a ServiceError says what has not, and what becomes of it."""
        if self._opened is None or self._process is None:
            return
        try:
            self._opened.close()
        except ServiceError as error:
            raise ServiceError(
                f"{error} (MLflow at {self._home.shown_mlflow_uri}); every result is kept in PLT_HOME, "
                f"and `plt resume {self.study_name}` brings MLflow up to date when it works"
            ) from error
        finally:
            self._process.close()

    def problem(self) -> str | None:
        """What MLflow has not taken so far, in one line, or None."""
        return None if self._opened is None else self._opened.problem()

    def runs(self) -> list[TrackedRun]:
        """Every trial's run, by number, once everything said has arrived."""
        with self._read() as store:
            return sorted(store.find("trial"), key=lambda run: (run.number or 0, run.run_id))

    def parent(self) -> TrackedRun | None:
        """The study's own run, once it was started."""
        with self._read() as store:
            return next(store.find("study"), None)

    def history(self, number: int, metric: str) -> list[Point]:
        """A metric's curve, one point per step; empty when it was never reported."""
        with self._read() as store:
            run = store.find_trial(number)
            return [] if run is None else store.history(run.run_id, metric)

    @contextmanager
    def _read(self) -> Iterator[MlflowRuns]:
        """The runs, once everything said has arrived."""
        if self._opened is not None:
            self._opened.drain()
        with service_errors(self._home):
            store = MlflowRuns(self._home, self.study_name)
            store.created = self._created
            yield store

    @property
    def _flusher(self) -> Flusher:
        if self._opened is None:
            raise RuntimeError("start_study comes before anything else is said of a study")
        return self._opened

    def _open_flusher(self) -> Flusher:
        path = self._home.spool(self.study_name)
        try:
            spool = Spool(path)
        except OSError as error:
            raise ServiceError(f"{path} cannot be written ({error.strerror}); make room or set PLT_HOME") from error
        self._process = MlflowProcess(self._home, self.study_name, self._created)
        return Flusher(spool, self._process.deliver, patience=self._patience)

    def _reconciling(self, study: StudyRecord, owned: Sequence[int]) -> Callable[[Moved], None]:
        time, numbers, process = self._now(), frozenset(owned), self._process
        assert process is not None
        return lambda moved: process.reconcile(study, numbers, time, moved)

    def _still_running(self, study: StudyRecord) -> dict[int, TrialRecord]:
        """What the record knows of the trials that still run."""
        return {trial.number: trial for trial in study.trials if trial.number in self._running}

    def _now(self) -> int:
        """Later than ever before: MLflow keeps milliseconds, and of what is said within one the largest value wins."""
        self._said = max(round(self._clock() * 1000), self._said + 1)
        return self._said
