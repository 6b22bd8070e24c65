"""MLflow is spoken with in a process of its own: never in the driver's, replaced when it dies, one at a time."""

import fcntl
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from mlflow import MlflowClient

from orchestrator.errors import ServiceError
from orchestrator.home import Home
from orchestrator.tracking.mlflow_tracker import MlflowTracker
from tests.orchestrator.tracking.mlflow_view import children, loss

Make = Callable[..., Any]

DRIVER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from orchestrator.home import Home
from orchestrator.records import Objective, StudyRecord, StudyState
from orchestrator.tracking.mlflow_tracker import MlflowTracker

study = StudyRecord(
    name="loops", question="", state=StudyState.RUNNING, objectives=(Objective(metric="x", direction="minimize"),),
    constraints=(), search=(), seeds=(0,), spec={}, budget=1, trials=(), created=datetime(2026, 5, 1, tzinfo=UTC),
)
tracker = MlflowTracker(Home(Path(sys.argv[1])), "loops")
tracker.start_study(study)
tracker.reconcile(study)
tracker.finish_study(study)
tracker.close()
print(sorted({name.partition(".")[0] for name in sys.modules} & {"mlflow", "sqlalchemy"}))
"""


def speaker() -> psutil.Process:
    """The process of this one that speaks with MLflow."""
    running = [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]
    (found,) = [one for one in running if "mlflow_process" in " ".join(one.cmdline())]
    return found


def test_a_driver_never_imports_mlflow(home: Home, client: MlflowClient) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(home.root)], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
    experiment = client.get_experiment_by_name("loops")
    assert experiment is not None
    assert [run.info.run_name for run in client.search_runs([experiment.experiment_id])] == ["loops"]


def test_one_that_is_killed_is_replaced_and_nothing_is_missing_or_there_twice(
    home: Home, client: MlflowClient, make_study: Make, make_trial: Make, complete: Make
) -> None:
    tracker = MlflowTracker(home, "loops")
    tracker.start_study(make_study())
    tracker.start_trial(make_trial(0))
    tracker.report(0, loss(1))
    tracker.runs()
    killed = speaker()
    killed.kill()
    tracker.report(0, loss(2))
    tracker.finish_trial(complete(0))
    tracker.close()
    [run] = children(client)
    assert run.info.status == "FINISHED"
    assert [point.step for point in client.get_metric_history(run.info.run_id, "train/loss")] == [1, 2]


def test_nobody_speaks_with_mlflow_while_the_process_of_an_earlier_driver_does(
    home: Home, client: MlflowClient, make_study: Make, make_trial: Make
) -> None:
    tracker = MlflowTracker(home, "loops", patience=8.0)
    home.study("loops").mkdir(parents=True)
    with home.tracking_lock("loops").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tracker.start_study(make_study())
        tracker.start_trial(make_trial(0))
        with pytest.raises(ServiceError, match="what an earlier driver said is still being written; 2 reports"):
            tracker.runs()
        assert client.get_experiment_by_name("loops") is None
    tracker.close()
    assert len(children(client)) == 1


def test_it_ends_when_nothing_more_is_said(home: Home, make_study: Make) -> None:
    tracker = MlflowTracker(home, "loops")
    tracker.start_study(make_study())
    tracker.runs()
    process = speaker()
    tracker.close()
    process.wait(timeout=60)
