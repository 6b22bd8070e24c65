"""What is called best and how sure: budgets, infeasible points, chance; verdicts against intervals made by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from dashboard import frames
from dashboard.advice import advise, verdicts
from orchestrator.configurations import group
from orchestrator.records import StudyRecord

MakeRecord = Callable[..., StudyRecord]
COST, SCORE = "decode/ms_per_token", "val/accuracy"


def seeds(scores: list[float], cost: float) -> list[dict[str, float]]:
    return [{SCORE: score, COST: cost} for score in scores]


@pytest.fixture
def study(make_record: MakeRecord) -> StudyRecord:
    return make_record(
        ({"num_loops": 1}, seeds([0.50, 0.52, 0.51], 4.0)),
        ({"num_loops": 2}, seeds([0.60, 0.64, 0.62], 5.0)),
        ({"num_loops": 3}, seeds([0.61, 0.63, 0.65], 8.0)),
        ({"num_loops": 4}, seeds([0.99, 0.99, 0.98], 20.0)),
        constraints=("decode/ms_per_token <= 10",),
    )


def advice(study: StudyRecord, most: float = 1e9) -> Any:
    configurations = group(study)
    frame = frames.within(frames.configurations_frame(study, configurations), {COST: most})
    return advise(frame, {one.fingerprint: one for one in configurations}, SCORE, [COST], "maximize")


def test_an_infeasible_point_is_never_best(study: StudyRecord) -> None:
    assert advice(study).fingerprint == "configuration-2"
    assert "R=3" in advice(study).text


def test_a_difference_that_may_be_chance_is_said(study: StudyRecord) -> None:
    assert "Not decided against R=2: the difference may be chance." in advice(study).text


def test_a_budget_leaves_what_it_can_buy(study: StudyRecord) -> None:
    within = advice(study, most=6.0)
    assert within.fingerprint == "configuration-1"
    assert "beyond chance" in within.text
    assert "5.00 ms/token" in within.text
    assert advice(study, most=4.5).text.endswith("It is the only one.")
    assert advice(study, most=1.0) is None


def test_one_seed_decides_nothing(make_record: MakeRecord) -> None:
    study = make_record(({"num_loops": 1}, seeds([0.5], 4.0)), ({"num_loops": 2}, seeds([0.9], 5.0)))
    assert "one seed each" in advice(study).text


def test_verdicts_say_for_sure_only_beyond_chance(study: StudyRecord) -> None:
    one, two, three, _ = group(study)
    said = verdicts([one, two, three], one, [SCORE, COST], {SCORE: "maximize", COST: "minimize"})
    assert len(said) == 4
    assert "**R=2** against **R=1**, Held-out accuracy: **better for sure**" in said[0]
    assert "95 % interval over 3 seeds" in said[0]
    assert "worse by measurement, +1.00 ms/token (+25.0 %)" in said[1]
    [unsure] = verdicts([two, three], two, [SCORE], {SCORE: "maximize"})
    assert "**not sure**: the 95 % interval holds zero" in unsure


def test_verdicts_of_single_seeds_are_not_sure(make_record: MakeRecord) -> None:
    study = make_record(({"num_loops": 1}, seeds([0.5], 4.0)), ({"num_loops": 2}, seeds([0.9], 4.0)))
    one, two = group(study)
    score, cost = verdicts([one, two], one, [SCORE, COST], {SCORE: "maximize", COST: "minimize"})
    assert "too few common seeds" in score
    assert cost.endswith("equal.")
