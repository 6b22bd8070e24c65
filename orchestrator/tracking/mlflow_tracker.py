"""A tracker that projects a study into MLflow: one experiment, a parent run for the study, a child run per trial.

Opening and reconciling talk to MLflow directly and fail clearly; everything else is queued for a background thread,
so a slow or absent server never slows training. `close` waits a bounded time and raises a ServiceError that names
what is not tracked; nothing of it is lost, because the study's own storage has it and the next `reconcile` brings
MLflow up to date.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial

from orchestrator.errors import ServiceError
from orchestrator.home import Home
from orchestrator.records import StudyRecord, TrialRecord
from orchestrator.tracking import projection
from orchestrator.tracking.flusher import Flusher
from orchestrator.tracking.mlflow_connection import is_transient, reason, service_errors
from orchestrator.tracking.mlflow_projection import MlflowProjection
from orchestrator.tracking.mlflow_runs import MlflowRuns
from orchestrator.tracking.tracked_run import Point, TrackedRun
from workers.protocol import MetricReport


class MlflowTracker:
    """One study's runs in MLflow. `close` and `reconcile` give up after `patience` seconds without any progress."""

    def __init__(
        self, home: Home, study_name: str, clock: Callable[[], float] = time.time, patience: float = 20.0
    ) -> None:
        """Open the study's experiment, making it when it is new.

        Raises:
            ServiceError: MLflow cannot be reached, or the experiment was deleted.
        """
        self.study_name = study_name
        self._home = home
        self._clock = clock
        self._said = 0.0
        """When the last report was said, in seconds since the epoch."""
        with service_errors(home):
            self._store = MlflowRuns(home, study_name, create=True)
        self._projection = MlflowProjection(self._store)
        self._flusher = Flusher(self._projection.add_metrics, is_transient, reason, patience=patience)

    def start_study(self, study: StudyRecord) -> None:
        """Find or make the parent run, and store the resolved spec as its artifact `spec.json`."""
        self._flusher.drain()
        with service_errors(self._home):
            self._projection.open_study(study)

    def start_trial(self, trial: TrialRecord) -> None:
        """Find or make the trial's run and mark it running."""
        self._flusher.write(f"start of trial {trial.number}", partial(self._projection.start, trial))

    def report(self, number: int, report: MetricReport) -> None:
        """Queue a report's metrics; never waits."""
        metrics = projection.report_metrics(report)
        self._said = max(self._clock(), self._said + 0.001)  # MLflow keeps milliseconds, and no order within one
        self._flusher.metrics(
            number, [(name, Point(report.step, value, self._said)) for name, value in metrics.items()]
        )

    def finish_trial(self, trial: TrialRecord) -> None:
        """Write final metrics and tags, the traceback of a failure as an artifact, and end the run."""
        self._flusher.write(f"end of trial {trial.number}", partial(self._projection.finish, trial))

    def finish_study(self, study: StudyRecord) -> None:
        """Write the counts, end what still runs as KILLED, and end the parent run."""
        self._flusher.write("end of the study", partial(self._projection.finish_study, study))

    def reconcile(self, study: StudyRecord, owned: Sequence[int] = ()) -> None:
        """Make the runs equal the record; see the protocol. Duplicates also go to MLflow's trash."""
        self._flusher.drain()
        with service_errors(self._home):
            self._projection.reconcile(study, frozenset(owned))

    def close(self) -> None:
        """Wait until everything said has arrived; a ServiceError names what has not."""
        try:
            self._flusher.close()
        except ServiceError as error:
            raise ServiceError(
                f"{error} (MLflow at {self._home.shown_mlflow_uri}); every result is kept in PLT_HOME, "
                "and running the study again when MLflow works brings it up to date"
            ) from error

    def problem(self) -> str | None:
        """What MLflow has not taken so far, in one line, or None."""
        return self._flusher.problem()

    def runs(self) -> list[TrackedRun]:
        """Every trial's run, by number, once everything said has arrived."""
        self._flusher.drain()
        return sorted(self._store.find("trial"), key=lambda run: (run.number or 0, run.run_id))

    def parent(self) -> TrackedRun | None:
        """The study's own run, once it was started."""
        self._flusher.drain()
        return next(iter(self._store.find("study")), None)

    def history(self, number: int, metric: str) -> list[Point]:
        """A metric's curve, one point per step; empty when it was never reported."""
        self._flusher.drain()
        run_id = self._projection.run_id(number)
        return [] if run_id is None else self._store.history(run_id, metric)
