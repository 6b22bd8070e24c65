"""The checks of the fault suite notice what they are there for: every way in which a study could have been harmed."""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from harness.driver import processes_of
from harness.invariants import Expected, breaches
from harness.outside import Place
from harness.rounds import Rounds
from harness.unbroken import NAME, Unbroken
from mlflow import MlflowClient
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

Harm = Callable[[Place], None]


@pytest.fixture
def unbroken(rounds: Rounds) -> Unbroken:
    return rounds.unbroken("plain")


@pytest.fixture
def place(unbroken: Unbroken, tmp_path: Path) -> Place:
    """A copy of the unbroken study, to be harmed."""
    shutil.copytree(unbroken.place.home.root, tmp_path / "home")
    return Place.of(tmp_path / "home", NAME)


def found(place: Place, unbroken: Unbroken) -> str:
    kept = unbroken.place.finished()
    expected = Expected(truth=unbroken.truth, configurations=unbroken.scenario.configurations, kept=kept)
    return "\n".join(breaches(place, expected))


def test_an_unbroken_study_breaches_nothing(place: Place, unbroken: Unbroken) -> None:
    assert found(place, unbroken) == ""


def change_a_value(place: Place) -> None:
    """The last bit of trial 3's loss, wherever the journal says it."""
    loss = place.record().trials[3].metrics["val/loss"]
    text = place.home.journal(NAME).read_text()
    place.home.journal(NAME).write_text(text.replace(repr(loss), repr(loss + 1e-15)))


def count_a_trial_twice(place: Place) -> None:
    study = _storage(place)
    study.add_trial(study.trials[2])


def leave_a_trial_running(place: Place) -> None:
    study = _storage(place)
    study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING))


def forget_the_end(place: Place) -> None:
    """Cut off everything from the end of the last trial on."""
    path = place.home.journal(NAME)
    lines = path.read_text().splitlines(keepends=True)
    last = max(index for index, line in enumerate(lines) if '"result"' in line)
    path.write_text("".join(lines[:last]))


def leave_a_run_running(place: Place) -> None:
    run = next(run for run in place.runs() if run.data.tags.get("plt.trial") == "1")
    MlflowClient(tracking_uri=place.tracking).update_run(run.info.run_id, status="RUNNING")


def lose_a_run(place: Place) -> None:
    run = next(run for run in place.runs() if run.data.tags.get("plt.trial") == "1")
    MlflowClient(tracking_uri=place.tracking).delete_run(run.info.run_id)


def lose_a_point(place: Place) -> None:
    with sqlite3.connect(place.home.root / "mlflow.db") as database:
        database.execute("DELETE FROM metrics WHERE key = 'train/loss' AND step < 10")


def change_a_point(place: Place) -> None:
    with sqlite3.connect(place.home.root / "mlflow.db") as database:
        database.execute("UPDATE metrics SET value = value * 2 WHERE key = 'val/loss' AND step < 20")


def change_the_weights(place: Place) -> None:
    path = next(place.home.study(NAME).glob("trials/0/attempt-1/checkpoint/model.safetensors"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def leave_half_a_file(place: Place) -> None:
    place.home.journal(NAME).with_suffix(".new").write_text("{")


def leave_something_undelivered(place: Place) -> None:
    place.home.spool(NAME).write_text(json.dumps({"delivered": 0}))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (change_a_value, ["trial 3 was finished and changed", "trial 3 has {"]),
        (count_a_trial_twice, ["was counted 2 times"]),
        (leave_a_trial_running, ["Optuna has trials"]),
        (forget_the_end, ["the study is INTERRUPTED", "is RUNNING in Optuna"]),
        (leave_a_run_running, ["MLflow's trial-1 is RUNNING"]),
        (lose_a_run, ["trial 1 has no run in MLflow"]),
        (lose_a_point, ["has no train/loss at steps"]),
        (change_a_point, ["has val/loss unlike an unbroken one at steps"]),
        (change_the_weights, ["trial 0 has other final weights"]),
        (leave_half_a_file, ["left behind: studies/unbroken/optuna.new"]),
        (leave_something_undelivered, ["not everything was delivered"]),
    ],
)
def test_harm_is_noticed(place: Place, unbroken: Unbroken, harm: Harm, words: list[str]) -> None:
    harm(place)
    lines = found(place, unbroken)
    assert [word for word in words if word not in lines] == []


def test_a_configuration_beyond_the_budget_is_noticed(place: Place, unbroken: Unbroken) -> None:
    scenario = replace(unbroken.scenario, configurations=unbroken.scenario.configurations - 1)
    assert "4 configurations for a budget of 3" in found(place, replace(unbroken, scenario=scenario))


@pytest.fixture
def orphan(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the study's home that waits for ever."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], env={"PLT_HOME": str(place.home.root)}, stdin=-1)
    yield process
    process.kill()
    process.wait()


def test_processes_are_found_by_their_home(place: Place, orphan: subprocess.Popen[bytes]) -> None:
    assert [process.pid for process in processes_of(place.home.root)] == [orphan.pid]


def _storage(place: Place) -> optuna.Study:
    return optuna.load_study(study_name=NAME, storage=JournalStorage(JournalFileBackend(str(place.home.journal(NAME)))))
