"""Records to track, and homes whose MLflow database is made once per session because making one takes seconds."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mlflow import MlflowClient

from orchestrator.home import Home
from orchestrator.records import AttemptRecord, Objective, StudyRecord, StudyState, TrialRecord, TrialState
from orchestrator.tracking.mlflow_connection import connect

BEGAN = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="session")
def template_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with an empty MLflow database."""
    root = tmp_path_factory.mktemp("template")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        connect(Home(root))
    return root


@pytest.fixture
def home(tmp_path: Path, template_home: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copytree(template_home, tmp_path / "home")
    return Home(tmp_path / "home")


@pytest.fixture
def make_trial() -> Callable[..., TrialRecord]:
    """A running trial of configuration `number // 2`; keywords replace its fields."""

    def make(number: int, **changes: object) -> TrialRecord:
        trial = TrialRecord(
            number=number,
            state=TrialState.RUNNING,
            params={"num_loops": 1 + number // 2},
            seed=number % 2,
            configuration=f"configuration-{number // 2}",
            values=None,
            metrics={},
            knobs={"num_loops": 1 + number // 2, "window": None, "lr": 3e-3},
            attempts=(AttemptRecord(number=1, started=BEGAN, info={"device": "cpu", "versions": {"torch": "2.13"}}),),
            started=BEGAN + timedelta(seconds=number),
        )
        return replace(trial, **changes)  # type: ignore[arg-type]

    return make


@pytest.fixture
def complete(make_trial: Callable[..., TrialRecord]) -> Callable[..., TrialRecord]:
    """A complete trial."""

    def make(number: int, **changes: object) -> TrialRecord:
        final = {"val/bits_per_byte": 2.0 + number, "decode/ms_per_token": 5.5}
        ended = BEGAN + timedelta(seconds=60 + number)
        return make_trial(
            number,
            **{"state": TrialState.COMPLETE, "values": (2.0 + number,), "metrics": final, "ended": ended} | changes,
        )

    return make


@pytest.fixture
def make_study() -> Callable[..., StudyRecord]:
    """A running study of the given trials."""

    def make(*trials: TrialRecord, **changes: object) -> StudyRecord:
        study = StudyRecord(
            name="loops",
            question="How many loops?",
            state=StudyState.RUNNING,
            objectives=(Objective(metric="val/bits_per_byte", direction="minimize"),),
            constraints=("decode/ms_per_token <= 12",),
            search=("num_loops",),
            seeds=(0, 1),
            spec={"name": "loops", "train": {"lr": 3e-3}},
            budget=4,
            trials=tuple(trials),
            created=BEGAN,
        )
        return replace(study, **changes)  # type: ignore[arg-type]

    return make


@pytest.fixture
def client(home: Home) -> MlflowClient:
    return MlflowClient(tracking_uri=home.mlflow_uri)
