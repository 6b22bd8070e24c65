"""Studies from their storage and curves from MLflow, as the dashboard reads them."""

import math
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.driver_lock import driver_lock
from orchestrator.errors import ServiceError, StudyError
from orchestrator.home import Home
from orchestrator.spec import StudySpec
from orchestrator.study import Study
from orchestrator.tracking.mlflow_tracker import MlflowTracker
from orchestrator.tracking.reader import Reader
from workers.protocol import MetricReport

Make = Callable[..., Any]


@pytest.fixture
def track(home: Home, make_study: Make, make_trial: Make) -> Callable[..., None]:
    """Track losses of trials of the study `loops`: a trial's list has one loss per ten steps."""

    def write(losses: dict[int, list[float]]) -> None:
        tracker = MlflowTracker(home, "loops")
        tracker.start_study(make_study())
        for number, values in losses.items():
            tracker.start_trial(make_trial(number))
            for index, value in enumerate(values):
                step = 10 * (index + 1)
                metrics = {"train/loss": value}
                tracker.report(number, MetricReport(step=step, tokens=64 * step, metrics=metrics, seconds=step / 100))
        tracker.close()

    return write


def test_curves_have_steps_tokens_and_gaps(home: Home, track: Make) -> None:
    track({0: [3.0, math.nan, 2.0], 1: [4.0]})
    curves = Reader(home).curves("loops", [0, 1, 5], "train/loss")

    assert set(curves) == {0, 1}
    assert curves[0].steps == (10, 20, 30)
    assert curves[0].tokens == (640.0, 1280.0, 1920.0)
    assert curves[0].values[0] == 3.0
    assert math.isnan(curves[0].values[1])
    assert curves[0].values[2] == 2.0


def test_long_curves_are_thinned_evenly_and_keep_their_ends(home: Home, track: Make) -> None:
    track({0: [1000.0 / (1 + index) for index in range(1001)]})
    full = Reader(home).curves("loops", [0], "train/loss", max_points=2000)[0]
    thin = Reader(home).curves("loops", [0], "train/loss", max_points=101)[0]

    assert len(full.steps) == 1001
    assert thin.steps == tuple(10 * (10 * index + 1) for index in range(101))
    assert set(zip(thin.steps, thin.values, strict=True)) <= set(zip(full.steps, full.values, strict=True))
    assert (thin.steps[0], thin.steps[-1]) == (full.steps[0], full.steps[-1])


def test_curve_metrics_are_those_reported_also_after_the_end(
    home: Home, make_study: Make, make_trial: Make, complete: Make
) -> None:
    tracker = MlflowTracker(home, "loops")
    tracker.start_study(make_study())
    tracker.start_trial(make_trial(0))
    tracker.report(0, MetricReport(step=1, tokens=1, metrics={"train/loss": 1.0, "val/loss": 2.0}, seconds=0.0))
    tracker.runs()
    assert Reader(home).curve_metrics("loops", [0]) == ["train/loss", "val/loss"]
    tracker.finish_trial(complete(0))
    tracker.close()
    assert Reader(home).curve_metrics("loops", [0, 7]) == ["train/loss", "val/loss"]


def test_a_run_on_a_database_is_named_by_its_id_and_address(home: Home, track: Make) -> None:
    track({0: [1.0]})
    link = Reader(home).run_link("loops", 0)
    assert link is not None
    assert link.url is None
    assert link.uri == home.mlflow_uri
    assert len(link.run_id) == 32
    assert Reader(home).run_link("loops", 1) is None


def test_a_study_that_was_never_tracked_has_no_curves_and_no_problem(home: Home) -> None:
    reader = Reader(home)
    assert reader.tracking_problem("untracked") is None
    assert reader.curves("untracked", [0], "train/loss") == {}
    assert reader.curve_metrics("untracked", [0]) == []
    assert reader.run_link("untracked", 0) is None


def test_reading_makes_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    reader = Reader(Home(tmp_path))
    assert reader.curves("loops", [0], "train/loss") == {}
    assert reader.run_link("loops", 0) is None
    assert list(tmp_path.iterdir()) == []


def test_curves_appear_once_the_study_is_tracked(home: Home, track: Make) -> None:
    reader = Reader(home)
    assert reader.curves("loops", [0], "train/loss") == {}
    track({0: [1.0]})
    assert reader.curves("loops", [0], "train/loss")[0].values == (1.0,)


def test_an_absent_server_is_a_problem_in_one_line(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    problem = Reader(home).tracking_problem("loops")
    assert problem is not None
    assert "connection refused" in problem
    assert "\n" not in problem
    with pytest.raises(ServiceError, match="connection refused"):
        Reader(home).curves("loops", [0], "train/loss")


def test_studies_come_with_the_one_that_moved_last_first(home: Home, make_spec: Callable[..., StudySpec]) -> None:
    began = datetime(2026, 5, 1, tzinfo=UTC)
    for name, minutes in (("older", 0), ("newest", 9), ("middle", 5)):
        made = began + timedelta(minutes=minutes)
        with driver_lock(home, name):
            Study.open(make_spec(name=name), home, clock=partial(lambda moment: moment, made))
    reader = Reader(home)
    assert [study.name for study in reader.studies()] == ["newest", "middle", "older"]
    assert reader.names() == ["middle", "newest", "older"]
    with pytest.raises(StudyError, match="newest"):
        reader.study("newes")


def test_reading_studies_imports_no_mlflow(home: Home) -> None:
    program = (
        "import sys; from pathlib import Path; from orchestrator.home import Home\n"
        "from orchestrator.tracking.reader import Reader\n"
        "Reader(Home(Path(sys.argv[1]))).studies()\n"
        "print([name for name in ('mlflow', 'torch', 'ray') if name in sys.modules])\n"
    )
    arguments = [sys.executable, "-c", program, str(home.root)]
    assert subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip() == "[]"
