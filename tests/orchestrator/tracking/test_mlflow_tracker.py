"""What only MLflow can show: the tree of runs, artifacts, restarts, deletions, and servers that are not there.

What was written is read back with MLflow's own client, not with our reading side.
"""

import json
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
from orchestrator.tracking.tracked_run import RunStatus
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


def test_a_deleted_experiment_is_said_with_its_remedy(home: Home, client: MlflowClient, make_study: Make) -> None:
    tracker = MlflowTracker(home, "loops")
    tracker.start_study(make_study())
    experiment = client.get_experiment_by_name("loops")
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    restore = rf"mlflow experiments restore --experiment-id {experiment.experiment_id}\) or give the study another name"
    with pytest.raises(ServiceError, match=restore):
        MlflowTracker(home, "loops")


def test_an_experiment_deleted_under_way_is_said_at_the_end(
    home: Home, client: MlflowClient, make_study: Make, make_trial: Make, complete: Make
) -> None:
    tracker = MlflowTracker(home, "loops")
    tracker.start_study(make_study())
    tracker.start_trial(make_trial(0))
    assert tracker.problem() is None
    tracker.runs()
    experiment = client.get_experiment_by_name("loops")
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    tracker.finish_trial(complete(0))
    with pytest.raises(ServiceError, match=r"end of trial 0: .*must be in the 'active' state"):
        tracker.close()


def test_a_server_that_is_not_there_is_said_at_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as unused:
        address = f"http://127.0.0.1:{unused.server_port}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    began = time.monotonic()
    with pytest.raises(
        ServiceError, match=rf"MLflow at {address} cannot be used \(connection refused\); start the server"
    ):
        MlflowTracker(home, "loops")
    assert time.monotonic() - began < 10


def test_a_database_that_cannot_be_made_is_said(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'file' / 'mlflow.db'}")
    with pytest.raises(ServiceError, match="cannot be used"):
        MlflowTracker(home, "loops")


@pytest.mark.slow
def test_processes_that_open_a_new_home_at_once_share_one_experiment_and_say_nothing(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from orchestrator.home import Home\n"
        "from orchestrator.tracking.mlflow_tracker import MlflowTracker\n"
        "tracker = MlflowTracker(Home(Path(sys.argv[1])), 'loops'); tracker.close()\n"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path / "new")]
    processes = [subprocess.Popen(arguments, stderr=subprocess.STDOUT, stdout=subprocess.PIPE) for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 2, said
    assert said == [b""] * 2
    client = MlflowClient(tracking_uri=Home(tmp_path / "new").mlflow_uri)
    assert sorted(experiment.name for experiment in client.search_experiments()) == ["Default", "loops"]


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
    home: Home, silent_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", silent_server)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with pytest.raises(ServiceError, match="no answer in time"):
        MlflowTracker(home, "loops")
