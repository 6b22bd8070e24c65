"""Planted studies give the planted answer, or say that they do not know it; and 95 % means 95 %."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from orchestrator.errors import StudyError
from orchestrator.recommendation import Verdict, markdown, recommend, text
from orchestrator.records import Objective, StudyRecord, TrialState
from tests.orchestrator.recommendation.planted import ACCURACY, KV, MS, simulate, study, trial, true_answer

Means = Mapping[int, Sequence[float]]
PEAK_AT_TWO: Means = {1: [0.69], 2: [0.78, 0.80], 3: [0.76, 0.71], 4: [0.70, 0.69]}
DIP_AT_TWO: Means = {1: [0.69], 2: [0.60, 0.62], 3: [0.90, 0.85]}


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("means", "answer"), [(PEAK_AT_TWO, 2), (DIP_AT_TWO, 3)])
def test_quality_need_not_be_monotone_in_the_loop_count(means: Means, answer: int) -> None:
    found = recommend(simulate(means, 0.004, 5, generator()))
    assert (found.loops, found.sure) == (answer, True)
    assert found.confidence >= 0.95
    assert {step.verdict for step in found.steps if step.from_loops == answer} <= {Verdict.NO_GAIN}


def test_a_smaller_loss_is_better() -> None:
    means: Means = {1: [2.69], 2: [2.50, 2.54], 3: [2.49, 2.52]}
    found = recommend(simulate(means, 0.004, 5, generator(), metric="val/bits_per_byte"))
    assert (found.loops, found.sure) == (2, True)
    assert found.worth == pytest.approx(0.0269, abs=1e-3)
    first = next(step for step in found.steps if (step.from_loops, step.to_loops) == (1, 2))
    assert first.gain.low > 0


def test_a_tie_is_for_the_smaller_loop_count() -> None:
    found = recommend(simulate({1: [0.70], 2: [0.70], 3: [0.70]}, 0.002, 6, generator()))
    assert (found.loops, found.sure) == (1, True)


def test_a_tie_within_the_noise_is_undecided_and_says_what_would_settle_it() -> None:
    means: Means = {1: [0.70], 2: [0.70]}
    found = recommend(simulate(means, 0.01, 3, generator(3)))
    assert not found.sure
    assert found.further_seeds is not None
    assert {one.knobs["num_loops"] for one in found.unsettled} == {1, 2}
    assert f"{found.further_seeds} more seed" in text(found)


def test_what_would_settle_it_is_the_fewest_seeds_that_do() -> None:
    """By the paired t-test's formula, counting up; the gain here is 0.010 and what it must be above is 0."""
    a, b = np.array([0.700, 0.712, 0.706]), np.array([0.704, 0.732, 0.712])
    rows = [(1, None, seed, v) for seed, v in enumerate(a)] + [(2, 8, seed, v) for seed, v in enumerate(b)]
    found = recommend(
        study([trial(i, r, w, s, {ACCURACY: v, MS: 5.0}) for i, (r, w, s, v) in enumerate(rows)]), worth=0.0
    )
    spread, gain = np.std(b - a, ddof=1), np.mean(b - a)
    fewest = next(more for more in range(1, 65) if gain > stats.t.ppf(0.95, 2 + more) * spread / math.sqrt(3 + more))
    assert not found.sure
    assert found.further_seeds == fewest


def test_one_seed_gives_an_answer_and_no_certainty() -> None:
    found = recommend(simulate(PEAK_AT_TWO, 0.001, 1, generator()))
    assert (found.loops, found.sure, found.confidence, found.noise) == (2, False, 0.0, None)
    assert all(math.isinf(step.gain.low) and step.verdict is Verdict.UNDECIDED for step in found.steps)
    assert "nothing is known of the noise" in text(found)
    assert {one.knobs["num_loops"] for one in found.unsettled} == {1, 2, 3, 4}


def test_losers_need_no_second_seed() -> None:
    """Only the best loop counts have five seeds; the noise that they show decides about the others too."""
    found = recommend(simulate(PEAK_AT_TWO, 0.004, {1: 1, 2: 5, 3: 5, 4: 1}, generator()))
    assert (found.loops, found.sure) == (2, True)


def test_a_budget_excludes_a_loop_count() -> None:
    record = simulate({1: [0.69], 2: [0.80], 3: [0.95]}, 0.004, 4, generator())
    assert recommend(record).loops == 3
    for bounded in (
        recommend(record, where=[f"{MS} <= 5.4"]),
        recommend(study_with_constraint(record, f"{MS} <= 5.4")),
    ):
        assert (bounded.loops, bounded.sure) == (2, True)
        assert bounded.left_out == {"breaks a constraint": 1}
        assert any("R=3 is not part of the answer: breaks a constraint" in caveat for caveat in bounded.caveats)


def study_with_constraint(record: StudyRecord, constraint: str) -> StudyRecord:
    amount = {constraint: 0.2}
    trials = tuple(
        replace(one, violations=amount if one.params["num_loops"] == 3 else {constraint: -0.1}) for one in record.trials
    )
    return replace(record, trials=trials, constraints=(constraint,))


def test_all_diverged_none_yet_and_a_single_trial() -> None:
    failed = {"state": TrialState.FAIL, "failure": {"reason": "diverged", "message": "", "traceback": ""}}
    diverged = recommend(study([trial(0, 1, None, 0, {}, **failed), trial(1, 2, 8, 0, {}, **failed)]))
    assert (diverged.loops, diverged.left_out) == (None, {"failed (diverged)": 2})
    assert "failed (diverged)" in text(diverged)
    empty = recommend(study([]))
    assert empty.loops is None
    assert "no trial yet" in text(empty)
    single = recommend(study([trial(0, 2, 8, 0, {ACCURACY: 0.8, MS: 5.0})]))
    assert (single.loops, single.sure, single.confidence) == (2, False, 0.0)
    assert "nothing is known of other loop counts" in text(single)


def test_a_diverged_loop_count_is_named() -> None:
    failed = {"state": TrialState.FAIL, "failure": {"reason": "diverged", "message": "", "traceback": ""}}
    record = simulate({1: [0.69], 2: [0.80]}, 0.004, 4, generator())
    found = recommend(replace(record, trials=(*record.trials, trial(99, 3, 8, 0, {}, **failed))))
    assert (found.loops, found.sure) == (2, True)
    assert "R=3 is not part of the answer: failed (diverged)" in found.caveats


def test_what_the_pruner_stopped_is_said() -> None:
    record = simulate({1: [0.69], 2: [0.80]}, 0.004, 4, generator())
    stopped = trial(99, 3, 8, 0, {ACCURACY: 0.4}, state=TrialState.PRUNED, stopped_at=1000)
    found = recommend(replace(record, trials=(*record.trials, stopped)))
    assert found.left_out == {"stopped by the pruner": 1}
    assert any("stopped early by the pruner" in caveat for caveat in found.caveats)


def test_nothing_is_sure_while_a_loop_count_was_only_ever_cut_short() -> None:
    record = simulate({1: [0.69], 2: [0.80]}, 0.004, 4, generator())
    assert recommend(record).sure
    cut = {"state": TrialState.PRUNED}
    short = trial(98, 3, 8, 0, {ACCURACY: 0.9}, stopped_at=1000, **cut)
    long = [
        trial(99 + number, 3, 16 + number, 0, {ACCURACY: 0.4 + 0.1 * number}, stopped_at=2000, **cut)
        for number in (0, 1)
    ]
    found = recommend(replace(record, trials=(*record.trials, short, *long)))
    assert (found.loops, found.sure, found.confidence) == (2, False, 0.0)
    assert [one.params for one in found.unknown] == [{"num_loops": 3, "window": 17}]
    assert "nothing with R=3 was trained to the end. A further seed of" in text(found)
    finished = trial(101, 3, 17, 1, {ACCURACY: 0.8, MS: 5.6, KV: 4.1e6})
    settled = recommend(replace(record, trials=(*record.trials, short, *long, finished)))
    assert settled.unknown == ()
    assert {step.to_loops for step in settled.steps} == {2, 3}


def test_when_everything_was_cut_short_nothing_is_recommended_but_what_would_help_is_known() -> None:
    stopped = [trial(n, n, 8, 0, {ACCURACY: 0.4}, state=TrialState.PRUNED, stopped_at=1000) for n in (1, 2)]
    found = recommend(study(stopped))
    assert found.loops is None
    assert [one.params["num_loops"] for one in found.unknown] == [1, 2]


def test_among_equals_the_cheapest_configuration_is_taken() -> None:
    found = recommend(simulate({1: [0.69], 2: [0.800, 0.801, 0.803]}, 0.0001, 3, generator()))
    assert found.configuration is not None
    assert found.configuration.params == {"num_loops": 2, "window": 4}
    assert [one.params["window"] for one in found.as_good] == [16, 8]
    apart = recommend(simulate({1: [0.69], 2: [0.800, 0.801, 0.850]}, 0.0001, 3, generator()))
    assert apart.configuration is not None
    assert apart.configuration.params["window"] == 16
    assert apart.as_good == ()


def test_the_worth_of_a_loop_decides_what_pays() -> None:
    record = simulate({1: [0.700], 2: [0.716], 3: [0.732]}, 0.0005, 4, generator())
    assert recommend(record).loops == 3
    assert recommend(record, worth=0.03).loops == 1
    assert recommend(record, worth=0.03).sure


def test_no_objective_that_training_changes() -> None:
    record = replace(study([trial(0, 1, None, 0, {MS: 3.0})]), objectives=(Objective(metric=KV, direction="minimize"),))
    assert "no objective" in text(recommend(record))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": ["decode/ms_per_token"]}, "must be METRIC"),
        ({"where": ["decode/speed <= 3"]}, "known are decode/ms_per_token"),
        ({"worth": -1.0}, "worth is -1.0"),
        ({"worth": math.nan}, "worth is nan"),
        ({"level": 95.0}, "between 0 and 1"),
    ],
)
def test_wrong_requests_are_refused_in_one_line(options: dict[str, object], message: str) -> None:
    record = simulate(PEAK_AT_TWO, 0.004, 2, generator())
    with pytest.raises(StudyError, match=message) as refused:
        recommend(record, **options)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


def test_it_can_be_printed_for_programs_and_people() -> None:
    for seeds in (1, 3):
        found = recommend(simulate(PEAK_AT_TWO, 0.02, seeds, generator()))
        plain = json.loads(json.dumps(found.to_plain(), allow_nan=False))
        assert plain["num_loops"] == found.loops
        assert len(plain["steps"]) == 6
        assert "R=2 to 3" in text(found)
        assert markdown(found).count("| --- ") == 17


TRUTHS: dict[str, Means] = {
    "peak": PEAK_AT_TWO,
    "dip": DIP_AT_TWO,
    "rising": {1: [0.69], 2: [0.71, 0.70, 0.70], 3: [0.725, 0.73], 4: [0.745, 0.74]},
    "ties": {1: [0.70], 2: [0.705, 0.70, 0.70, 0.70], 3: [0.70, 0.70, 0.70]},
    "at the edge": {1: [0.700], 2: [0.7099, 0.7099, 0.7099], 3: [0.719, 0.719]},
}


@pytest.mark.parametrize(
    "noise", [0.004, 0.015, {1: 0.004, 2: 0.01, 3: 0.02, 4: 0.02}], ids=["small", "large", "growing with loops"]
)
def test_where_it_claims_95_percent_it_is_wrong_in_at_most_5(noise: float | dict[int, float]) -> None:
    """200 studies: every truth, 2 to 6 seeds, with and without a part that replicates of one seed share."""
    claims, wrong = 0, 0
    for index in range(200):
        means = list(TRUTHS.values())[index % len(TRUTHS)]
        random = generator(1000 + index)
        record = simulate(means, noise, 2 + index // 5 % 5, random, seed_noise=0.02 * (index % 2))
        found = recommend(record, look_ahead=False)
        claims += found.sure
        wrong += found.sure and found.loops != true_answer(means, 0.01)
    assert claims >= 20
    assert wrong <= 0.05 * claims
