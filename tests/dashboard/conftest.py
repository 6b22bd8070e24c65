"""An empty home, studies in it, and study records without storage."""

import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.constraints import violations
from orchestrator.home import Home
from orchestrator.records import Objective, StudyRecord, StudyState, TrialRecord, TrialState
from tests.dashboard.planting import plant_study

Plant = Callable[..., StudyRecord]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An empty home, named by PLT_HOME."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("PLT_HOME", str(tmp_path / "home"))
    return Home.from_environment()


@pytest.fixture
def plant(home: Home) -> Plant:
    """Make a study in the home; see `tests.dashboard.planting.plant_study`."""
    return lambda name="loops", **how: plant_study(home, name, **how)


@pytest.fixture
def make_record() -> Callable[..., StudyRecord]:
    """A study record without storage: rows of (knobs, metrics per seed), with keywords for the study's other fields.

    A metric given as NaN is left out, as the storage leaves it out. A configuration without seeds failed.
    """

    def make(*rows: tuple[dict[str, Any], list[dict[str, float]]], **changes: Any) -> StudyRecord:
        trials = tuple(
            _record(number, f"configuration-{index}", knobs, seed, metrics, changes.get("constraints", ()))
            for number, (index, knobs, seed, metrics) in enumerate(
                (index, knobs, seed, metrics)
                for index, (knobs, seeds) in enumerate(rows)
                for seed, metrics in enumerate(seeds or [{}])
            )
        )
        objectives = (
            Objective(metric="val/accuracy", direction="maximize"),
            Objective(metric="decode/ms_per_token", direction="minimize"),
        )
        fields: dict[str, Any] = {
            "name": "planted",
            "question": "Which?",
            "state": StudyState.RUNNING,
            "objectives": objectives,
            "constraints": (),
            "search": ("num_loops", "window"),
            "seeds": (0, 1, 2),
            "spec": {},
            "budget": 8,
            "trials": trials,
            "created": datetime(2026, 5, 1, tzinfo=UTC),
        }
        return StudyRecord(**{**fields, **changes})

    return make


def _record(
    number: int, configuration: str, knobs: dict[str, Any], seed: int, metrics: dict[str, float], limits: Iterable[str]
) -> TrialRecord:
    known = {name: value for name, value in metrics.items() if math.isfinite(value)}
    amounts = violations(limits, known)
    return TrialRecord(
        number=number,
        state=TrialState.COMPLETE if metrics else TrialState.FAIL,
        params={name: knobs[name] for name in ("num_loops", "window") if name in knobs},
        seed=seed,
        configuration=configuration,
        values=(0.0, 0.0) if metrics else None,
        metrics=known,
        knobs=knobs,
        feasible=all(amount <= 0 for amount in amounts.values()),
        violations=amounts,
        failure=None if metrics else {"reason": "diverged", "message": "nan", "traceback": ""},
        started=datetime(2026, 5, 1, 0, number, tzinfo=UTC),
        ended=datetime(2026, 5, 1, 0, number, 30, tzinfo=UTC),
    )
