"""What only MLflow can show: the tree of runs, artifacts, restarts, deletions, and servers that are not there.

What was written is read back with MLflow's own client, not with our reading side.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType

from orchestrator.errors import ServiceError
from orchestrator.home import Home
from orchestrator.records import StudyState, TrialState
from orchestrator.tracking import mlflow_runs
from orchestrator.tracking.mlflow_tracker import MlflowTracker
from orchestrator.tracking.reader import Reader
from orchestrator.tracking.tracked_run import RunStatus
from tests.orchestrator.tracking.mlflow_view import children, loss
from workers.protocol import MetricReport

Make = Callable[..., Any]


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
    """The first tracker ends none of its runs, as after kill -9; the second finds two of them RUNNING."""
    first = MlflowTracker(home, "loops")
    first.start_study(make_study())
    for number in (0, 1, 2):
        first.start_trial(make_trial(number))
    first.report(1, MetricReport(step=10, tokens=100, metrics={"train/loss": 2.0}, seconds=1.0))
    first.finish_trial(complete(0))
    orphans = {run.number: run.run_id for run in first.runs() if run.status is RunStatus.RUNNING}
    assert set(orphans) == {1, 2}
    first.close()

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


def test_reconciling_what_is_right_writes_nothing(
    home: Home, make_study: Make, complete: Make, make_trial: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over more trials than one page of a search holds."""
    monkeypatch.setattr(mlflow_runs, "_PAGE", 10)
    failed = make_trial(3, state=TrialState.FAIL, failure={"reason": "timeout", "message": "m" * 9000})
    trials = [failed if number == 3 else complete(number) for number in range(25)]
    record = make_study(*trials)
    tracker = MlflowTracker(home, "loops")
    tracker.start_study(record)
    tracker.reconcile(record)
    tracker.close()

    written: list[str] = []
    for name in ("create_run", "log_batch", "set_terminated", "update_run", "delete_run", "get_run"):
        original = getattr(MlflowClient, name)

        def spy(self: Any, *arguments: Any, _name: str = name, _original: Any = original, **named: Any) -> Any:
            written.append(_name)
            return _original(self, *arguments, **named)

        monkeypatch.setattr(MlflowClient, name, spy)
    again = MlflowTracker(home, "loops")
    again.start_study(record)
    again.runs()
    written.clear()
    again.reconcile(record)
    assert len(again.runs()) == 25
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


def test_sixteen_trials_report_while_a_reader_polls(home: Home, make_study: Make, make_trial: Make) -> None:
    """One SQLite file, written and read at once: nothing is locked out, no point is missing."""
    trials = [make_trial(number) for number in range(16)]
    tracker = MlflowTracker(home, "loops")
    tracker.start_study(make_study(*trials))
    ended, failures = threading.Event(), []

    def poll() -> None:
        while not ended.is_set():
            try:
                Reader(home).curves("loops", [0, 5, 15], "train/loss")
            except ServiceError as error:
                failures.append(error)

    reader = threading.Thread(target=poll)
    reader.start()
    for trial in trials:
        tracker.start_trial(trial)
    for step in range(1, 31):
        for trial in trials:
            tracker.report(trial.number, loss(step))
        if step % 10 == 0:
            tracker.runs()
    tracker.close()
    ended.set()
    reader.join()
    assert failures == []
    curves = Reader(home).curves("loops", range(16), "train/loss")
    assert {number: curve.values for number, curve in curves.items()} == {
        number: tuple(1 / step for step in range(1, 31)) for number in range(16)
    }
