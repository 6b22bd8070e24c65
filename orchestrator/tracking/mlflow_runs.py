"""One study's runs in MLflow, written and read one request at a time.

Runs are found by their tags, never by a thread's "active run". The writer is the driver alone; anybody may read.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from orchestrator.home import Home
from orchestrator.tracking import projection
from orchestrator.tracking.mlflow_connection import (
    connect,
    find_experiment,
    is_new,
    open_experiment,
    require_durable,
    require_usable,
)
from orchestrator.tracking.tracked_run import MetricPoint, Point, RunStatus, TrackedRun, latest_per_step

if TYPE_CHECKING:
    from mlflow.entities import Run

_PAGE = 200
"""Runs in one answer: a driver that looks through thousands keeps no more of them in memory."""
_MOST_PARAMS, _MOST_TAGS, _MOST_METRICS = 100, 100, 800
"""In one request; MLflow servers refuse more than 1000 in all."""


class MlflowRuns:
    """The runs of one experiment."""

    def __init__(self, home: Home, study_name: str, create: bool = False) -> None:
        """Find the study's experiment, and make it when asked to; otherwise nothing is made, not even a database.

        Raises:
            ServiceError: The experiment was deleted, or the tracking address is a database in memory.
        """
        require_durable(home)
        self.study_name = study_name
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

    def find(self, kind: str) -> Iterator[TrackedRun]:
        """Every run of a kind, `study` or `trial`, the newest first; read page by page, so delete none meanwhile."""
        return self._search(f"tags.`{projection.KIND}` = '{kind}'")

    def find_trial(self, number: int) -> TrackedRun | None:
        """The newest run of a trial."""
        return next(self._search(f"tags.`{projection.NUMBER}` = '{number}'", most=1), None)

    def get(self, run_id: str) -> TrackedRun:
        """One run as it is now."""
        return _record(self.client.get_run(run_id))

    def require_usable(self) -> None:
        """Raise a ServiceError with the remedy when the experiment was deleted while it was used."""
        assert self.experiment_id is not None, "only a tracker that made the experiment uses it"
        require_usable(self.client, self.experiment_id)

    def history(self, run_id: str, metric: str) -> list[Point]:
        """A metric's curve, one point per step; empty when it was never reported."""
        points = self.client.get_metric_history(run_id, metric)
        return latest_per_step(Point(point.step, point.value, point.timestamp / 1000) for point in points)

    def create(self, name: str, tags: Mapping[str, str], started: int | None) -> str:
        """A new running run, begun at a time in milliseconds, by default now; its id."""
        assert self.experiment_id is not None, "only a tracker that made the experiment makes runs"
        owned = {**tags, projection.STUDY: self.created} if self.created else dict(tags)
        run = self.client.create_run(self.experiment_id, start_time=started, tags=owned, run_name=name)
        return str(run.info.run_id)

    def log(
        self,
        run_id: str,
        metrics: Iterable[MetricPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Add to a run, in as few requests as there can be; a parameter that is there must have the same value."""
        from mlflow.entities import Metric, Param, RunTag

        points = iter([Metric(name, point.value, round(point.timestamp * 1000), point.step) for name, point in metrics])
        run_params = iter([Param(name, value) for name, value in (params or {}).items()])
        run_tags = iter([RunTag(name, value) for name, value in (tags or {}).items()])
        while True:
            some_points = list(islice(points, _MOST_METRICS))
            some_params, some_tags = list(islice(run_params, _MOST_PARAMS)), list(islice(run_tags, _MOST_TAGS))
            if not (some_points or some_params or some_tags):
                return
            self.client.log_batch(run_id, metrics=some_points, params=some_params, tags=some_tags)

    def resume(self, run_id: str) -> None:
        """Mark a run as running."""
        self.client.update_run(run_id, status=RunStatus.RUNNING.value)

    def end(self, run_id: str, status: RunStatus, ended: int) -> None:
        """End a run at a time in milliseconds."""
        self.client.set_terminated(run_id, status.value, ended)

    def _search(self, condition: str, most: int = _PAGE) -> Iterator[TrackedRun]:
        if self.experiment_id is None:
            return
        if self.created:
            condition += f" and tags.`{projection.STUDY}` = '{self.created}'"
        token: str | None = None
        while token is None or token:
            page = self.client.search_runs(
                [self.experiment_id], condition, max_results=most, order_by=["start_time DESC"], page_token=token
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
