"""The read side of the platform: studies from their storage, training curves from MLflow. The dashboard reads
nothing else.

What a study found comes from its own storage and needs no MLflow; only curves and links to runs do. When MLflow
cannot be reached they raise a ServiceError, and `tracking_problem` says why.
"""

import logging
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from orchestrator.errors import PltError, ServiceError, StudyError
from orchestrator.followed_study import FollowedStudy, standing_mark
from orchestrator.home import Home
from orchestrator.journal_store import journals
from orchestrator.live_state import LiveState, read_live
from orchestrator.records import StudyRecord
from orchestrator.requests import Request
from orchestrator.studies import list_studies
from orchestrator.tracking import projection
from orchestrator.tracking.mlflow_connection import is_server, service_errors
from orchestrator.tracking.tracked_run import Point, TrackedRun

if TYPE_CHECKING:
    from orchestrator.tracking.mlflow_runs import MlflowRuns


_logger = logging.getLogger(__name__)
_MOST_STUDIES = 32
"""Studies that are followed at a time."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A metric during training."""

    steps: tuple[int, ...]
    """Optimizer steps done, ascending."""
    tokens: tuple[float, ...]
    """Training tokens seen at each step; NaN where the report did not say."""
    values: tuple[float, ...]
    """NaN where the value was not finite."""
    seconds: tuple[float, ...] = ()
    """Wall time since the attempt began, at each step; NaN where the report did not say."""


@dataclass(frozen=True, kw_only=True)
class RunLink:
    """Where a trial's run is."""

    run_id: str
    url: str | None
    """Its page on the MLflow server; None when MLflow is a database without a server."""
    uri: str
    """The tracking address, for `mlflow ui --backend-store-uri`."""


class Reader:
    """Reads one home. Cheap to make; MLflow is imported when the first curve is asked for.

    Studies that were read lately are followed: reading one again costs what is new in its journal. Several threads may
    share a reader.
    """

    def __init__(self, home: Home) -> None:
        self.home = home
        self._lock = Lock()
        self._stores: OrderedDict[str, MlflowRuns] = OrderedDict()
        self._followed: OrderedDict[str, FollowedStudy] = OrderedDict()

    def prepare(self) -> None:
        """Do beforehand what takes seconds: load MLflow's client. Who asks for a curve is told when that fails."""
        with suppress(PltError), service_errors(self.home):
            from orchestrator.tracking.mlflow_runs import MlflowRuns

            MlflowRuns(self.home, "")

    def names(self) -> list[str]:
        """Names of the studies of this home."""
        return list_studies(self.home)

    def latest_names(self) -> list[str]:
        """The same, the one that was written to last first."""
        store = journals(self.home)
        found = [(standing.written, name) for name in self.names() if (standing := store.standing(name)) is not None]
        return [name for _, name in sorted(found, reverse=True)]

    def study(self, name: str) -> StudyRecord:
        """One study with all its trials, the same object while it has not changed.

        A StudyError when there is none of that name.
        """
        return self._follow(name).read()

    def pending(self, name: str) -> list[Request]:
        """What a study's driver was asked and has not answered yet, the oldest first."""
        return self._follow(name).pending()

    def mark(self, name: str) -> Hashable:
        """Equal at two moments when the study stood the same at both; costs microseconds."""
        return standing_mark(self.home, name)

    def live(self, name: str) -> LiveState:
        """What its running trials are doing; nothing where that cannot be read."""
        return read_live(self.home.live(name)) or LiveState()

    def _follow(self, name: str) -> FollowedStudy:
        """The study's follower; the one that was asked longest ago makes room."""
        with self._lock:
            followed = self._followed.get(name)
            if followed is None:
                followed = self._followed[name] = FollowedStudy(self.home, name)
            _keep_latest(self._followed, name)
            return followed

    def studies(self) -> list[StudyRecord]:
        """Every study that can be read, the one that moved last first."""
        records = []
        for name in self.names():
            try:
                records.append(self.study(name))
            except StudyError as error:
                _logger.warning("%s", error)
        return sorted(records, key=_last_moved, reverse=True)

    def curves(self, study: str, numbers: Sequence[int], metric: str, max_points: int = 1000) -> dict[int, Curve]:
        """A metric's curve of each trial that reported it, thinned evenly to `max_points`, the ends kept.

        Raises:
            ServiceError: MLflow cannot be reached, or the study's experiment was deleted.
        """
        curves: dict[int, Curve] = {}
        with self._mlflow(study) as store:
            for number, run in _found(store, numbers).items():
                if points := store.history(run.run_id, metric):
                    tokens, seconds = (
                        store.history(run.run_id, name) for name in (projection.TOKENS, projection.SECONDS)
                    )
                    curves[number] = _curve(points, tokens, seconds, max_points)
        return curves

    def curve_metrics(self, study: str, numbers: Iterable[int]) -> list[str]:
        """Names of the metrics that these trials reported while they trained; a ServiceError as for `curves`."""
        with self._mlflow(study) as store:
            names = {name for run in _found(store, numbers).values() for name in _reported(run)}
        return sorted(names - {projection.TOKENS, projection.SECONDS})

    def run_link(self, study: str, number: int) -> RunLink | None:
        """Where a trial's run is, None when it has none yet; a ServiceError as for `curves`."""
        with self._mlflow(study) as store:
            run = _found(store, [number]).get(number)
            if run is None:
                return None
            uri = self.home.shown_mlflow_uri
            page = f"{uri.rstrip('/')}/#/experiments/{store.experiment_id}/runs/{run.run_id}"
        return RunLink(run_id=run.run_id, url=page if is_server(uri) else None, uri=uri)

    def tracking_problem(self, study: str) -> str | None:
        """Why a study's curves cannot be read, in one line, or None."""
        try:
            with self._mlflow(study):
                return None
        except ServiceError as error:
            return str(error)

    @contextmanager
    def _mlflow(self, study: str) -> Iterator["MlflowRuns"]:
        """The study's runs, with MLflow's errors turned into ours; looked up again until the study is tracked."""
        with service_errors(self.home):
            from orchestrator.tracking.mlflow_runs import MlflowRuns

            store = self._stores.get(study)
            if store is None or store.experiment_id is None:
                store = self._stores[study] = MlflowRuns(self.home, study)
                created = self.study(study).created if journals(self.home).exists(study) else None
                store.created = created.isoformat() if created else None
            with self._lock:
                _keep_latest(self._stores, study)
            yield store


def _keep_latest(kept: "OrderedDict[str, Any]", name: str) -> None:
    """Move one to the end, and drop the first ones while there are too many."""
    if name in kept:
        kept.move_to_end(name)
    while len(kept) > _MOST_STUDIES:
        kept.popitem(last=False)


def _found(store: "MlflowRuns", numbers: Iterable[int]) -> dict[int, TrackedRun]:
    """The runs of these trials, of those that have one."""
    runs = {number: store.find_trial(number) for number in numbers}
    return {number: run for number, run in runs.items() if run is not None}


def _reported(run: TrackedRun) -> set[str]:
    """The tracker's own list once the trial ended; before that a run has no other metrics than reported ones."""
    listed = run.tags.get(projection.CURVES)
    return set(run.metrics) if listed is None else set(listed.split(","))


def _curve(points: Sequence[Point], tokens: Sequence[Point], seconds: Sequence[Point], max_points: int) -> Curve:
    kept = _thinned(points, max_points)
    return Curve(
        steps=tuple(point.step for point in kept),
        tokens=_at(tokens, kept),
        values=tuple(point.value for point in kept),
        seconds=_at(seconds, kept),
    )


def _at(series: Sequence[Point], kept: Sequence[Point]) -> tuple[float, ...]:
    """What another metric was at the steps that are kept; NaN where it was not reported."""
    known = {point.step: point.value for point in series}
    return tuple(known.get(point.step, float("nan")) for point in kept)


def _thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` points, evenly spaced by position, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    gap = (len(points) - 1) / (most - 1)
    return [points[round(index * gap)] for index in range(most)]


def _last_moved(study: StudyRecord) -> float:
    moments = [study.created, *(trial.started for trial in study.trials), *(trial.ended for trial in study.trials)]
    return max((moment.timestamp() for moment in moments if moment is not None), default=0.0)
