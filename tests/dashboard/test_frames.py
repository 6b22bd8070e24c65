"""Tables equal the records; intervals are SciPy's; the front is that of a brute-force search."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dashboard import frames
from orchestrator.configurations import group
from orchestrator.records import StudyRecord, TrialState

MakeRecord = Callable[..., StudyRecord]
PLT = {"num_loops": 2, "window": 8, "local": "swa", "gate_mode": "learned"}


def seeds(*values: float, cost: float = 5.0) -> list[dict[str, float]]:
    return [{"val/accuracy": value, "decode/ms_per_token": cost} for value in values]


def frame_of(study: StudyRecord) -> pd.DataFrame:
    return frames.configurations_frame(study, group(study))


def test_a_configuration_is_one_row_with_its_interval_over_seeds(make_record: MakeRecord) -> None:
    values = (0.50, 0.56, 0.53)
    study = make_record((PLT, seeds(*values)), ({"num_loops": 1}, seeds(0.4)))
    first, second = (row for _, row in frame_of(study).iterrows())

    expected = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert first["val/accuracy"] == pytest.approx(np.mean(values))
    assert (first["val/accuracy low"], first["val/accuracy high"]) == pytest.approx(expected)
    assert (first["num_loops"], first["window"], first["gate"]) == (2, 8, "learned gate")
    assert (first["trials"], first["seeds"]) == ([0, 1, 2], 3)
    assert first["label"] == "R=2 · window 8"
    assert second["val/accuracy"] == 0.4
    assert math.isnan(second["val/accuracy low"])
    assert second["trials"] == [3]


def test_standings(make_record: MakeRecord) -> None:
    study = make_record(
        ({"num_loops": 1}, seeds(0.5, cost=5.0)),
        ({"num_loops": 2}, seeds(0.4, cost=6.0)),
        ({"num_loops": 3}, seeds(0.9, cost=9.0)),
        ({"num_loops": 4}, []),
        constraints=("decode/ms_per_token <= 8",),
    )
    waiting = replace(study.trials[0], number=4, configuration="new", state=TrialState.WAITING, metrics={}, values=None)
    pruned = replace(waiting, number=5, configuration="pruned", state=TrialState.PRUNED, stopped_at=1000)
    study = replace(study, trials=(*study.trials, waiting, pruned))
    standings = ["front", "dominated", "infeasible", "failed", "unfinished", "stopped"]
    assert list(frame_of(study)["standing"]) == standings


def brute_force(points: list[tuple[float, float]], signs: tuple[int, int]) -> set[int]:
    """Not beaten by any point that is at least as good in both and better in one."""
    costs = [(signs[0] * x, signs[1] * y) for x, y in points]
    return {
        index for index, (x, y) in enumerate(costs) if not any(a <= x and b <= y and (a < x or b < y) for a, b in costs)
    }


@pytest.mark.parametrize("x_direction", ["minimize", "maximize"])
@pytest.mark.parametrize("y_direction", ["minimize", "maximize"])
def test_the_front_is_that_of_brute_force(x_direction: Any, y_direction: Any) -> None:
    generator = np.random.default_rng(7)
    signs = (1 if x_direction == "minimize" else -1, 1 if y_direction == "minimize" else -1)
    for _ in range(50):
        points = [(float(x), float(y)) for x, y in generator.integers(0, 8, (12, 2))]
        frame = pd.DataFrame(points, columns=["x", "y"])
        frame["standing"] = "dominated"
        frame["index"] = range(12)
        best = frames.front(frame, "x", "y", x_direction, y_direction)
        kept = {points[index] for index in best["index"]}
        assert kept == {points[index] for index in brute_force(points, signs)}
        assert len(best) == len(kept)
        assert list(best["x"]) == sorted(best["x"])


def test_what_is_infeasible_unfinished_or_unmeasured_is_never_on_the_front() -> None:
    frame = pd.DataFrame(
        {"x": [1.0, 2.0, 0.5, 0.4, math.nan], "y": [2.0, 3.0, 9.0, 9.0, 9.0]}
        | {"standing": ["dominated", "front", "infeasible", "unfinished", "front"]}
    )
    best = frames.front(frame, "x", "y", "minimize", "maximize")
    assert list(best.index) == [0, 1]


def test_studies_show_progress_failures_and_the_best_feasible(make_record: MakeRecord) -> None:
    study = make_record(
        ({"num_loops": 1}, seeds(0.5, 0.5, 0.5, cost=5.0)),
        ({"num_loops": 2}, seeds(0.6, cost=6.0)),
        ({"num_loops": 3}, seeds(0.9, cost=9.0)),
        ({"num_loops": 4}, []),
        constraints=("decode/ms_per_token <= 8",),
    )
    [row] = frames.studies_frame([frames.study_row(study, group(study))]).to_dict("records")
    assert row["state"] == "RUNNING"
    assert row["configurations"] == "3 of 8"
    assert row["progress"] == pytest.approx(37.5)
    assert row["trials"] == 6
    assert row["failures"] == "1 diverged"
    assert row["best"] == "0.600 (R=2)"
    assert row["moved"] == datetime(2026, 5, 1, 0, 5, 30, tzinfo=UTC)


def test_best_without_a_feasible_configuration_says_so(make_record: MakeRecord) -> None:
    infeasible = make_record(({"num_loops": 1}, seeds(0.5)), constraints=("decode/ms_per_token <= 1",))
    assert frames.best_text(infeasible, group(infeasible)) == "no feasible configuration yet"
    assert frames.best_text(make_record(), []) == "nothing yet"
    assert len(frames.studies_frame([])) == 0
    assert "best" in frames.studies_frame([])


def test_a_metric_that_was_not_finite_is_left_out(make_record: MakeRecord) -> None:
    study = make_record((PLT, [{"val/accuracy": math.nan, "decode/ms_per_token": 5.0}]))
    frame = frame_of(study.__class__(**{**study.__dict__, "objectives": study.objectives[1:]}))
    assert "val/accuracy" not in frame
    assert list(frame["decode/ms_per_token"]) == [5.0]


def test_the_shown_table_sorts_by_standing_and_has_numbers_in_fitting_units(make_record: MakeRecord) -> None:
    rows = [
        {"val/accuracy": value, "decode/ms_per_token": 5.0, "kv/bytes_per_sequence": 524288.0} for value in (0.4, 0.6)
    ]
    study = make_record(({"num_loops": 1}, rows[:1]), (PLT, rows))
    metrics = frames.metrics_of(study, group(study))
    assert metrics == ["val/accuracy", "decode/ms_per_token", "kv/bytes_per_sequence"]
    shown, columns = frames.display(frame_of(study), study.search, metrics)

    assert list(shown["standing"]) == ["front", "dominated"]
    assert list(shown["window"]) == ["8", "-"]
    assert list(shown["kv/bytes_per_sequence"]) == [512.0, 512.0]
    assert columns["kv/bytes_per_sequence"].title == "KV cache per sequence (KiB)"
    half = stats.t.ppf(0.975, 1) * stats.sem([0.4, 0.6])
    assert shown["± val/accuracy"].iloc[0] == pytest.approx(half)


def test_trials_and_facts_as_tables(make_record: MakeRecord) -> None:
    study = make_record((PLT, seeds(0.4, 0.6)), ({"num_loops": 1}, []))
    frame = frames.trials_frame(study)
    assert list(frame["trial"]) == [0, 1, 2]
    assert list(frame["state"]) == ["COMPLETE", "COMPLETE", "FAIL"]
    assert list(frame["failure"]) == ["", "", "diverged"]
    assert list(frame["seconds"]) == [30.0, 30.0, 30.0]
    assert list(frame["val/accuracy"])[:2] == [0.4, 0.6]
    assert list(frame["window"]) == ["8", "8", "-"]
    facts = frames.facts_frame({"cores": 2, "versions": {"torch": "2.13", "none": None}})
    assert facts.to_numpy().tolist() == [["cores", "2"], ["versions / torch", "2.13"]]
