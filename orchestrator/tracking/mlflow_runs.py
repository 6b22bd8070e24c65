"""One study's runs in MLflow, written and read one request at a time.

Runs are found by their tags, never by a thread's "active run". The writer is the driver alone; anybody may read.
"""

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from orchestrator.home import Home
from orchestrator.tracking import projection
from orchestrator.tracking.flusher import MetricPoint
from orchestrator.tracking.mlflow_connection import connect, find_experiment, is_new, open_experiment
from orchestrator.tracking.tracked_run import Point, RunStatus, TrackedRun, latest_per_step

if TYPE_CHECKING:
    from mlflow.entities import Run

_PAGE = 1000
_MOST_PARAMS = 100
"""Per request; MLflow servers refuse more."""


class MlflowRuns:
    """The runs of one experiment."""

    def __init__(self, home: Home, study_name: str, create: bool = False) -> None:
        """Find the study's experiment, and make it when asked to; otherwise nothing is made, not even a database.

        Raises:
            ServiceError: MLflow cannot be reached, or the experiment was deleted.
        """
        self.experiment_id: str | None = None
        """None while the study has no experiment."""
        self.created: str | None = None
        """The study whose runs are meant, by when it was created; None means every study that had this name."""
        if not create and is_new(home):
            return
        self.client = connect(home)
        if create:
            self.experiment_id = open_experiment(self.client, home, study_name)
        elif (experiment := find_experiment(self.client, study_name)) is not None:
            self.experiment_id = experiment.experiment_id

    def find(self, kind: str) -> list[TrackedRun]:
        """Every run of a kind, `study` or `trial`, the newest first."""
        return list(self._search(f"tags.`{projection.KIND}` = '{kind}'"))

    def find_trial(self, number: int) -> TrackedRun | None:
        """The newest run of a trial."""
        return next(iter(self._search(f"tags.`{projection.NUMBER}` = '{number}'")), None)

    def history(self, run_id: str, metric: str) -> list[Point]:
        """A metric's curve, one point per step; empty when it was never reported."""
        points = self.client.get_metric_history(run_id, metric)
        return latest_per_step(Point(point.step, point.value, point.timestamp / 1000) for point in points)

    def create(self, name: str, tags: Mapping[str, str], started: datetime | None) -> TrackedRun:
        """A new running run."""
        assert self.experiment_id is not None, "only a tracker that made the experiment makes runs"
        start = projection.milliseconds(started)
        owned = {**tags, projection.STUDY: self.created} if self.created else dict(tags)
        return _record(self.client.create_run(self.experiment_id, start_time=start, tags=owned, run_name=name))

    def log(
        self,
        run_id: str,
        metrics: Iterable[MetricPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Add to a run; a parameter that is there already must have the same value."""
        from mlflow.entities import Metric, Param, RunTag

        points = [Metric(name, point.value, round(point.timestamp * 1000), point.step) for name, point in metrics]
        run_tags = [RunTag(name, value) for name, value in (tags or {}).items()]
        entries = iter([Param(name, value) for name, value in (params or {}).items()])
        while chunk := list(islice(entries, _MOST_PARAMS)):
            self.client.log_batch(run_id, params=chunk)
        if points or run_tags:
            self.client.log_batch(run_id, metrics=points, tags=run_tags)

    def resume(self, run_id: str) -> None:
        """Mark a run as running."""
        self.client.update_run(run_id, status=RunStatus.RUNNING.value)

    def end(self, run_id: str, status: RunStatus, ended: datetime | None = None) -> None:
        """End a run, now or at a time in the past."""
        self.client.set_terminated(run_id, status.value, projection.milliseconds(ended) or round(time.time() * 1000))

    def _search(self, condition: str) -> Iterable[TrackedRun]:
        if self.experiment_id is None:
            return
        if self.created:
            condition += f" and tags.`{projection.STUDY}` = '{self.created}'"
        token: str | None = None
        while token is None or token:
            page = self.client.search_runs(
                [self.experiment_id], condition, max_results=_PAGE, order_by=["start_time DESC"], page_token=token
            )
            yield from (_record(run) for run in page)
            token = page.token or ""


def _record(run: "Run") -> TrackedRun:
    number = run.data.tags.get(projection.NUMBER)
    return TrackedRun(
        run_id=run.info.run_id,
        number=None if number is None else int(number),
        status=RunStatus(run.info.status),
        params=dict(run.data.params),
        metrics=dict(run.data.metrics),
        tags=dict(run.data.tags),
        started=_moment(run.info.start_time),
        ended=_moment(run.info.end_time),
    )


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
