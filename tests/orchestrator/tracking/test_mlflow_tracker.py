"""What only MLflow can show: the tree of runs, artifacts, restarts, deletions, and servers that are not there.

What was written is read back with MLflow's own client, not with our reading side.
"""

import json
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
from mlflow.entities import Run, ViewType

from orchestrator.errors import ServiceError
from orchestrator.home import Home
from orchestrator.records import StudyState, TrialState
from orchestrator.tracking.mlflow_tracker import MlflowTracker
from orchestrator.tracking.reader import Reader
from orchestrator.tracking.tracked_run import RunStatus
from orchestrator.tracking.untracked import untracked
from workers.protocol import MetricReport

Make = Callable[..., Any]


@pytest.fixture
def client(home: Home) -> MlflowClient:
    return MlflowClient(tracking_uri=home.mlflow_uri)


def children(client: MlflowClient) -> list[Run]:
    experiment = client.get_experiment_by_name("loops")
    assert experiment is not None
    return [run for run in client.search_runs([experiment.experiment_id]) if "mlflow.parentRunId" in run.data.tags]


def test_one_experiment_a_parent_and_its_children(
    home: Home, client: MlflowClient, make_study: Make, make_trial: Make, complete: Make
) -> None:
    tracker = MlflowTracker(home, "loops")
    tracker.start_study(make_study())
    failure = {"reason": "exception", "message": "RuntimeError: no", "traceback": "Traceback\nRuntimeError: no"}
    failed = make_trial(1, state=TrialState.FAIL, failure=failure)
    tracker.finish_trial(complete(0))
    tracker.finish_trial(failed)
    tracker.finish_study(make_study(complete(0), failed, state=StudyState.COMPLETE))
    tracker.close()

    experiment = client.get_experiment_by_name("loops")
    assert experiment is not None
    assert experiment.artifact_location == (home.mlflow_artifacts / "loops").as_uri()
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"loops", "trial-0", "trial-1"}
    parent = runs["loops"].info.run_id
    assert {runs[f"trial-{number}"].data.tags["mlflow.parentRunId"] for number in (0, 1)} == {parent}
    assert runs["loops"].data.tags["mlflow.note.content"] == "How many loops?"
    assert {name: run.info.status for name, run in runs.items()} == {
        "loops": "FINISHED",
        "trial-0": "FINISHED",
        "trial-1": "FAILED",
    }
    spec = Path(client.download_artifacts(parent, "spec.json"))
    assert json.loads(spec.read_text()) == {"name": "loops", "train": {"lr": 3e-3}}
    summary = json.loads(Path(client.download_artifacts(parent, "summary.json")).read_text())
    assert summary["failures"] == {"exception": 1}
    text = Path(client.download_artifacts(runs["trial-1"].info.run_id, "traceback.txt")).read_text()
    assert text == failure["traceback"]


def test_a_killed_driver_leaves_runs_that_the_next_one_takes_over(
    home: Home, client: MlflowClient, make_study: Make, make_trial: Make, complete: Make
) -> None:
    """The first tracker is never closed, as after kill -9; the second finds two runs RUNNING."""
    first = MlflowTracker(home, "loops")
    first.start_study(make_study())
    for number in (0, 1, 2):
        first.start_trial(make_trial(number))
    first.report(1, MetricReport(step=10, tokens=100, metrics={"train/loss": 2.0}, seconds=1.0))
    first.finish_trial(complete(0))
    orphans = {run.number: run.run_id for run in first.runs() if run.status is RunStatus.RUNNING}
    assert set(orphans) == {1, 2}

    record = make_study(complete(0), make_trial(1), make_trial(2))
    second = MlflowTracker(home, "loops")
    second.start_study(record)
    second.reconcile(record, owned=[1])
    second.runs()
    statuses = {run.data.tags["plt.trial"]: run.info.status for run in children(client)}
    assert statuses == {"0": "FINISHED", "1": "RUNNING", "2": "KILLED"}

    second.start_trial(make_trial(1))
    second.report(1, MetricReport(step=20, tokens=200, metrics={"train/loss": 1.0}, seconds=2.0))
    second.finish_trial(complete(1, metrics={"val/bits_per_byte": 1.5}))
    second.finish_trial(complete(2))
    second.finish_study(make_study(complete(0), complete(1), complete(2), state=StudyState.COMPLETE))
    second.close()
    runs = children(client)
    assert len(runs) == 3
    assert {run.info.status for run in runs} == {"FINISHED"}
    resumed = next(run for run in runs if run.data.tags["plt.trial"] == "1")
    assert resumed.info.run_id == orphans[1]
    assert [point.step for point in client.get_metric_history(orphans[1], "train/loss")] == [10, 20]
    assert resumed.data.metrics["val/bits_per_byte"] == 1.5


def test_metrics_finished_while_mlflow_was_away_are_written_at_the_next_start(
    home: Home, client: MlflowClient, make_study: Make, make_trial: Make, complete: Make
) -> None:
    first = MlflowTracker(home, "loops")
    first.start_study(make_study())
    first.start_trial(make_trial(0))
    first.report(0, MetricReport(step=50, tokens=100, metrics={"val/bits_per_byte": 8.0}, seconds=1.0))
    first.close()

    record = make_study(complete(0))
    second = MlflowTracker(home, "loops")
    second.start_study(record)
    second.reconcile(record)
    second.close()

    [run] = children(client)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["val/bits_per_byte"] == 2.0


def test_a_duplicate_goes_to_the_trash_and_another_studys_run_is_left(
    home: Home, client: MlflowClient, make_study: Make, complete: Make
) -> None:
    record = make_study(complete(0))
    tracker = MlflowTracker(home, "loops")
    tracker.start_study(record)
    tracker.finish_trial(complete(0))
    [original] = tracker.runs()
    tags = {"plt.kind": "trial", "plt.trial": "0", "plt.configuration": "configuration-0", "plt.seed": "0"}
    tags["plt.study_created"] = original.tags["plt.study_created"]
    experiment = client.get_experiment_by_name("loops")
    assert experiment is not None
    duplicate = client.create_run(experiment.experiment_id, tags=tags)
    foreign = client.create_run(experiment.experiment_id, tags={**tags, "plt.configuration": "another"})
    tracker.reconcile(record)
    tracker.close()

    assert {run.run_id: run.status for run in tracker.runs()} == {
        original.run_id: RunStatus.FINISHED,
        foreign.info.run_id: RunStatus.KILLED,
    }
    trash = client.search_runs([experiment.experiment_id], run_view_type=ViewType.DELETED_ONLY)
    assert [run.info.run_id for run in trash] == [duplicate.info.run_id]


def delete_experiment(client: MlflowClient) -> str:
    experiment = client.get_experiment_by_name("loops")
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    return str(experiment.experiment_id)


def loss(step: int) -> MetricReport:
    return MetricReport(step=step, tokens=64 * step, metrics={"train/loss": 1 / step}, seconds=step / 10)


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
        "running the study again when MLflow works delivers them"
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
    tmp_path: Path, home: Home, client: MlflowClient, make_study: Make, complete: Make
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
    tracker = MlflowTracker(home, "loops", patience=0.0)
    tracker.start_study(make_study())
    tracker.start_trial(make_trial(0))
    for step in range(1, 21):
        tracker.report(0, loss(step))
    tracker.report(0, MetricReport(step=21, tokens=21, metrics={"train/loss": math.nan}, seconds=1.0))
    tracker.finish_trial(complete(0))
    said = path.read_bytes()
    tracker.runs()
    first = {run.run_id: run for run in tracker.runs()}
    history = client.get_metric_history(next(iter(first)), "train/loss")

    path.write_bytes(b'{"delivered":                  36}\n' + said[36:])
    again = MlflowTracker(home, "loops")
    again.start_study(make_study(complete(0)))
    again.reconcile(make_study(complete(0)))
    again.close()
    assert {run.run_id: run for run in again.runs()} == first
    assert len(client.get_metric_history(next(iter(first)), "train/loss")) == len(history) == 21
    assert len(client.get_metric_history(next(iter(first)), "val/bits_per_byte")) == 1


def test_reconciling_what_is_right_writes_nothing(
    home: Home, make_study: Make, complete: Make, make_trial: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over more trials than one page of a search holds."""
    failed = make_trial(3, state=TrialState.FAIL, failure={"reason": "timeout", "message": "m" * 9000})
    trials = [failed if number == 3 else complete(number) for number in range(230)]
    record = make_study(*trials)
    tracker = MlflowTracker(home, "loops")
    tracker.start_study(record)
    tracker.reconcile(record)
    tracker.close()

    from mlflow import MlflowClient as Client

    written: list[str] = []
    for name in ("create_run", "log_batch", "set_terminated", "update_run", "delete_run", "get_run"):
        original = getattr(Client, name)

        def spy(self: Any, *arguments: Any, _name: str = name, _original: Any = original, **named: Any) -> Any:
            written.append(_name)
            return _original(self, *arguments, **named)

        monkeypatch.setattr(Client, name, spy)
    again = MlflowTracker(home, "loops")
    again.start_study(record)
    again.runs()
    written.clear()
    again.reconcile(record)
    assert len(again.runs()) == 230
    assert written == []
    again.close()


def test_a_database_in_memory_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for uri in (
        "sqlite:///:memory:",
        "sqlite://",
        "sqlite:///file::memory:?cache=shared",
        "sqlite:///file:x?mode=memory&uri=true",
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        with pytest.raises(ServiceError, match="a database in memory that no other process sees"):
            MlflowTracker(home, "loops")
        assert "in memory" in (Reader(home).tracking_problem("loops") or "")


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/St_Johns", "UTC"])
def test_times_do_not_depend_on_the_time_zone(
    home: Home, client: MlflowClient, make_study: Make, complete: Make, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        trial = complete(0)
        tracker = MlflowTracker(home, "loops")
        tracker.start_study(make_study())
        tracker.finish_trial(trial)
        tracker.close()
        [run] = children(client)
        assert (run.info.start_time, run.info.end_time) == (1_777_636_800_000, 1_777_636_860_000)
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


def test_a_database_that_cannot_be_made_is_said(
    home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_study: Make
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'file' / 'mlflow.db'}")
    tracker = MlflowTracker(home, "loops", patience=0.5)
    tracker.start_study(make_study())
    with pytest.raises(ServiceError, match=r"Not a directory|File exists"):
        tracker.close()


@pytest.mark.slow
def test_processes_that_open_a_new_home_at_once_share_one_database_and_say_nothing(tmp_path: Path) -> None:
    """Eight studies, two of every name: the losers of each race find what the winner made."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from orchestrator.home import Home\n"
        "from orchestrator.tracking.mlflow_runs import MlflowRuns\n"
        "MlflowRuns(Home(Path(sys.argv[1])), sys.argv[2], create=True)\n"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path / "new")]
    processes = [
        subprocess.Popen([*arguments, f"loops-{number // 2}"], stderr=subprocess.STDOUT, stdout=subprocess.PIPE)
        for number in range(8)
    ]
    said = [process.communicate(timeout=250)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, said
    assert said == [b""] * 8
    client = MlflowClient(tracking_uri=Home(tmp_path / "new").mlflow_uri)
    names = sorted(experiment.name for experiment in client.search_experiments())
    assert names == ["Default", *(f"loops-{number}" for number in range(4))]


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
    tracker = MlflowTracker(home, "loops", patience=4.0)
    tracker.start_study(make_study())
    with pytest.raises(ServiceError, match="no answer in time; 1 reports"):
        tracker.close()
