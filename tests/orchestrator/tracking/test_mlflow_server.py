"""A real MLflow server behind a proxy that goes away and comes back under a study."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from orchestrator.errors import ServiceError
from orchestrator.home import Home
from orchestrator.records import StudyState
from orchestrator.tracking.mlflow_tracker import MlflowTracker
from orchestrator.tracking.untracked import untracked
from tests.orchestrator.tracking.mlflow_view import children, loss
from tests.services import answers, free_port

Make = Callable[..., Any]


@pytest.fixture
def server(home: Home, tmp_path: Path) -> Iterator[int]:
    """The port of an MLflow server of its own database."""
    port = free_port()
    where = ("--backend-store-uri", home.mlflow_uri, "--artifacts-destination", str(tmp_path / "files"))
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *where, "--port", str(port), "--workers", "1"],
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert answers(f"http://127.0.0.1:{port}/health", 120)
    yield port
    process.terminate()
    process.wait()


class Line:
    """The way to the server, which can be cut and mended."""

    def __init__(self, server: int) -> None:
        self.port, self._server = free_port(), server
        self._process: subprocess.Popen[str] | None = None

    def mend(self) -> None:
        arguments = ["--listen", str(self.port), "--to", str(self._server), "--delay", "0"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.slow_proxy", *arguments], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("listening")

    def cut(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture
def line(server: int) -> Iterator[Line]:
    made = Line(server)
    yield made
    made.cut()


@pytest.mark.slow
def test_two_outages_lose_and_double_nothing(
    home: Home,
    server: int,
    line: Line,
    monkeypatch: pytest.MonkeyPatch,
    make_study: Make,
    make_trial: Make,
    complete: Make,
) -> None:
    """The second outlasts the driver; the next one, of a study that is complete, delivers what is left."""
    client = MlflowClient(tracking_uri=f"http://127.0.0.1:{server}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{line.port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracker = MlflowTracker(home, "loops", patience=5.0)
    tracker.start_study(make_study())
    numbers = range(4)
    for number in numbers:
        tracker.start_trial(make_trial(number))

    def report(first: int) -> None:
        for step in range(first, first + 25):
            for number in numbers:
                tracker.report(number, loss(step))

    report(1)
    line.mend()
    tracker.runs()
    report(26)
    line.cut()
    report(51)
    line.mend()
    tracker.runs()
    line.cut()
    report(76)
    for number in numbers:
        tracker.finish_trial(complete(number))
    finished = make_study(*map(complete, numbers), state=StudyState.COMPLETE)
    tracker.finish_study(finished)
    with pytest.raises(ServiceError, match="connection refused; 105 reports and changes of state wait"):
        tracker.close()
    assert (untracked(home, "loops") or "").startswith("100 reports and 5 changes of state of 4 trials")

    line.mend()
    again = MlflowTracker(home, "loops")
    again.start_study(finished)
    again.reconcile(finished)
    again.finish_study(finished)
    again.close()
    assert untracked(home, "loops") is None
    runs = children(client)
    assert sorted(run.data.tags["plt.trial"] for run in runs) == ["0", "1", "2", "3"]
    for run in runs:
        points = client.get_metric_history(run.info.run_id, "train/loss")
        assert [(point.step, point.value) for point in points] == [(step, 1 / step) for step in range(1, 101)]
        assert run.info.status == "FINISHED"
        assert run.data.metrics["val/bits_per_byte"] == 2.0 + int(run.data.tags["plt.trial"])


@pytest.mark.slow
def test_what_a_slow_server_does_later_is_not_there_twice(
    home: Home,
    server: int,
    monkeypatch: pytest.MonkeyPatch,
    make_study: Make,
    make_trial: Make,
    complete: Make,
) -> None:
    """It makes every run that it was asked for before the asker lost patience, and asked again."""
    client = MlflowClient(tracking_uri=f"http://127.0.0.1:{server}")
    database = sqlite3.connect(home.root / "mlflow.db", isolation_level=None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    tracker = MlflowTracker(home, "loops", patience=30.0)
    tracker.start_study(make_study())
    tracker.start_trial(make_trial(0))
    tracker.reconcile(make_study(make_trial(0)), owned=[0])  # now it knows every run, and asks for new ones at once
    assert [run.number for run in tracker.runs()] == [0]
    database.execute("BEGIN IMMEDIATE")  # whoever writes waits
    tracker.start_trial(make_trial(1))
    until = time.monotonic() + 30
    while tracker.problem() is None and time.monotonic() < until:
        time.sleep(0.1)
    assert "no answer in time" in (tracker.problem() or "")
    database.execute("ROLLBACK")
    trials = [complete(0), complete(1)]
    for trial in trials:
        tracker.finish_trial(trial)
    tracker.finish_study(make_study(*trials, state=StudyState.COMPLETE))
    tracker.close()
    assert sorted((run.data.tags["plt.trial"], run.info.status) for run in children(client)) == [
        ("0", "FINISHED"),
        ("1", "FINISHED"),
    ]
