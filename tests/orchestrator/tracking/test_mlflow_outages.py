"""MLflow away, deleted, silent, or asked twice: no point lost, none doubled, nobody kept waiting.

What was written is read back with MLflow's own client, not with our reading side.
"""

import fcntl
import math
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from orchestrator.errors import ServiceError
from orchestrator.home import Home
from orchestrator.records import StudyState, TrialState
from orchestrator.tracking.mlflow_tracker import MlflowTracker
from orchestrator.tracking.untracked import untracked
from tests.orchestrator.tracking.mlflow_view import children, loss
from workers.protocol import MetricReport

Make = Callable[..., Any]


def delete_experiment(client: MlflowClient) -> str:
    experiment = client.get_experiment_by_name("loops")
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    return str(experiment.experiment_id)


@pytest.mark.parametrize("at", ["start", "middle"])
def test_a_deleted_experiment_is_said_once_with_its_remedy_and_loses_nothing(
    home: Home, client: MlflowClient, make_study: Make, make_trial: Make, complete: Make, at: str
) -> None:
    tracker = MlflowTracker(home, "loops")
    tracker.start_study(make_study())
    tracker.start_trial(make_trial(0))
    tracker.report(0, loss(1))
    tracker.runs()
    experiment = delete_experiment(client)
    if at == "start":
        tracker.close()
        tracker = MlflowTracker(home, "loops")
        tracker.start_study(make_study(make_trial(0)))
    for step in (2, 3):
        tracker.report(0, loss(step))
    tracker.finish_trial(complete(0))
    tracker.finish_study(make_study(complete(0), state=StudyState.COMPLETE))
    remedy = rf"mlflow experiments restore --experiment-id {experiment}\) or give the study another name"
    with pytest.raises(ServiceError, match=remedy) as raised:
        tracker.close()
    assert str(raised.value).count("was deleted") == 1
    assert untracked(home, "loops") is not None

    client.restore_experiment(experiment)
    again = MlflowTracker(home, "loops")
    again.start_study(make_study(complete(0)))
    again.reconcile(make_study(complete(0)))
    again.close()
    assert untracked(home, "loops") is None
    [run] = children(client)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["val/bits_per_byte"] == 2.0
    assert [point.step for point in client.get_metric_history(run.info.run_id, "train/loss")] == [1, 2, 3]


def test_a_purged_experiment_is_said_and_made_anew_by_the_next_driver(
    home: Home, client: MlflowClient, make_study: Make, make_trial: Make, complete: Make
) -> None:
    tracker = MlflowTracker(home, "loops")
    tracker.start_study(make_study())
    tracker.runs()
    with sqlite3.connect(home.mlflow_uri.removeprefix("sqlite:///")) as database:  # as `mlflow gc` does
        database.execute("PRAGMA foreign_keys = OFF")
        for table in ("tags", "runs", "experiment_tags", "experiments"):
            database.execute(f"DELETE FROM {table}")
    database.close()
    tracker.start_trial(make_trial(0))
    tracker.report(0, loss(1))
    with pytest.raises(ServiceError, match="was purged; run the study again"):
        tracker.close()
    again = MlflowTracker(home, "loops")
    again.start_study(make_study(complete(0)))
    again.reconcile(make_study(complete(0)))
    again.close()
    [run] = children(client)
    assert run.info.status == "FINISHED"
    assert [point.step for point in client.get_metric_history(run.info.run_id, "train/loss")] == [1]


def test_a_trial_whose_run_was_deleted_is_named_and_the_others_go_on(
    home: Home, client: MlflowClient, make_study: Make, make_trial: Make
) -> None:
    tracker = MlflowTracker(home, "loops")
    tracker.start_study(make_study())
    for number in (0, 1):
        tracker.start_trial(make_trial(number))
    client.delete_run(next(run.run_id for run in tracker.runs() if run.number == 0))
    for number in (0, 1):
        tracker.report(number, loss(1))
    with pytest.raises(ServiceError, match=r"metrics of trial 0: .*must be in the 'active' state"):
        tracker.close()
    [run] = children(client)
    assert run.data.metrics["train/loss"] == 1.0


def test_a_server_that_is_not_there_holds_nothing_up(
    home: Home, monkeypatch: pytest.MonkeyPatch, make_study: Make, make_trial: Make, complete: Make
) -> None:
    """The whole study goes by without MLflow; the next driver delivers it, points, states and all."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as unused:
        address = f"http://user:secret@127.0.0.1:{unused.server_port}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    tracker = MlflowTracker(home, "loops", patience=0.5)
    began = time.monotonic()
    tracker.start_study(make_study())
    tracker.reconcile(make_study())
    for number in (0, 1):
        tracker.start_trial(make_trial(number))
        for step in (1, 2, 3):
            tracker.report(number, loss(step))
    tracker.finish_trial(complete(0))
    tracker.finish_study(make_study(complete(0), make_trial(1), state=StudyState.INTERRUPTED))
    assert time.monotonic() - began < 1.0
    with pytest.raises(
        ServiceError, match=r"connection refused; 12 reports and changes of state wait .*/mlflow|\*\*\*"
    ) as raised:
        tracker.close()
    assert "secret" not in str(raised.value)
    assert untracked(home, "loops") == (
        "6 reports and 6 changes of state of 2 trials are not in MLflow yet; "
        "`plt resume loops` delivers them when MLflow works"
    )

    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    again = MlflowTracker(home, "loops")
    record = make_study(complete(0), make_trial(1, state=TrialState.WAITING))
    again.start_study(record)
    again.reconcile(record)
    again.close()
    client = MlflowClient(tracking_uri=home.mlflow_uri)
    runs = {run.data.tags["plt.trial"]: run for run in children(client)}
    assert {number: run.info.status for number, run in runs.items()} == {"0": "FINISHED", "1": "KILLED"}
    for run in runs.values():
        points = client.get_metric_history(run.info.run_id, "train/loss")
        assert [(point.step, point.value) for point in points] == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    assert runs["0"].data.metrics["val/bits_per_byte"] == 2.0


def test_a_driver_killed_before_anything_was_delivered_loses_nothing(
    home: Home, client: MlflowClient, make_study: Make, complete: Make
) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from orchestrator.home import Home\n"
        "from orchestrator.tracking.entry import Reported\n"
        "from orchestrator.tracking.mlflow_tracker import MlflowTracker\n"
        "from orchestrator.records import StudyRecord, StudyState\n"
        "from workers.protocol import MetricReport\n"
        "study = StudyRecord(name='loops', question='', state=StudyState.RUNNING, objectives=(), constraints=(), "
        "search=(), seeds=(), spec={}, budget=1, trials=())\n"
        "tracker = MlflowTracker(Home(Path(sys.argv[1])), 'loops')\n"
        "tracker.start_study(study)\n"
        "for step in range(1, 101):\n"
        "    tracker.report(0, MetricReport(step=step, tokens=step, metrics={'train/loss': 1 / step}, seconds=0.0))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(home.root)]).returncode == -9
    assert untracked(home, "loops") is not None
    record = make_study(complete(0), created=None)
    tracker = MlflowTracker(home, "loops")
    tracker.start_study(record)
    tracker.reconcile(record)
    tracker.close()
    [run] = children(client)
    points = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(point.step, point.value) for point in points] == [(step, 1 / step) for step in range(1, 101)]
    assert run.info.status == "FINISHED"
    assert run.data.tags["plt.configuration"] == "configuration-0"


def test_delivered_twice_is_there_once(
    home: Home, client: MlflowClient, make_study: Make, make_trial: Make, complete: Make
) -> None:
    """The spool of a driver that was killed after every delivery and before it crossed anything off."""
    path = home.spool("loops")
    tracker = MlflowTracker(home, "loops")
    with home.mlflow_lock.open("a") as lock:  # the process that delivers waits for it before it connects
        fcntl.flock(lock, fcntl.LOCK_EX)
        tracker.start_study(make_study())
        tracker.start_trial(make_trial(0))
        tracker.report(0, MetricReport(step=0, tokens=0, metrics={"train/loss": math.nan}, seconds=1.0))
        for step in range(1, 21):
            tracker.report(0, loss(step))
        tracker.finish_trial(complete(0))
        said = path.read_bytes()
    first = {run.run_id: run for run in tracker.runs()}
    tracker.close()
    history = client.get_metric_history(next(iter(first)), "train/loss")

    path.write_bytes(said)
    again = MlflowTracker(home, "loops")
    again.start_study(make_study(complete(0)))
    again.reconcile(make_study(complete(0)))
    again.close()
    assert {run.run_id: run for run in again.runs()} == first
    assert len(client.get_metric_history(next(iter(first)), "train/loss")) == len(history) == 21
    assert len(client.get_metric_history(next(iter(first)), "val/bits_per_byte")) == 1


def test_a_database_that_cannot_be_made_is_said(
    home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_study: Make
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'file' / 'mlflow.db'}")
    tracker = MlflowTracker(home, "loops", patience=8.0)
    tracker.start_study(make_study())
    with pytest.raises(ServiceError, match=r"Not a directory|File exists"):
        tracker.close()


@pytest.fixture
def silent_server() -> Iterator[str]:
    """An address that takes connections and answers nothing."""
    release = threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def handle(self) -> None:
            release.wait(30)

    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        release.set()
        server.shutdown()
        thread.join()


def test_a_server_that_never_answers_does_not_hang(
    home: Home, silent_server: str, monkeypatch: pytest.MonkeyPatch, make_study: Make
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", silent_server)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    tracker = MlflowTracker(home, "loops", patience=8.0)
    tracker.start_study(make_study())
    with pytest.raises(ServiceError, match="no answer in time; 1 reports"):
        tracker.close()
