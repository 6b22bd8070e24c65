"""Seeds go where they can change the answer, and end when it is certain."""

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.recommendation import recommend
from orchestrator.recommendation.seeds import wanted_by_the_answer
from orchestrator.records import StudyRecord, TrialRecord, TrialState
from tests.orchestrator.recommendation.planted import ACCURACY, simulate, trial, true_answer

MEANS = {1: [0.69], 2: [0.80, 0.79, 0.60], 3: [0.75, 0.55]}


def the_whole(seed: int) -> StudyRecord:
    return simulate(MEANS, 0.006, 8, np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(6))
def test_one_seed_at_a_time_leads_to_the_certain_answer_with_few_seeds(seed: int) -> None:
    whole = the_whole(seed)
    known = replace(whole, trials=tuple(trial for trial in whole.trials if trial.seed == 0))
    while wanted := wanted_by_the_answer(known):
        one = wanted[0]
        used = {trial.seed for trial in known.trials if trial.configuration == one}
        missing = [trial for trial in whole.trials if trial.configuration == one and trial.seed not in used]
        if not missing:
            break
        known = replace(known, trials=(*known.trials, missing[0]))
    found = recommend(known)
    assert (found.loops, found.sure) == (2, True)
    assert len(known.trials) <= 16 < len(whole.trials)
    worst = [trial for trial in known.trials if trial.configuration in ("2-16", "3-8")]
    assert len(worst) == 2


def test_with_one_seed_the_best_of_each_loop_count_go_first() -> None:
    whole = the_whole(0)
    known = replace(whole, trials=tuple(trial for trial in whole.trials if trial.seed == 0))
    best = {one.fingerprint for one in recommend(known).best.values()}
    assert set(wanted_by_the_answer(known)[:3]) == best


def test_a_seed_that_still_runs_is_not_asked_for_twice() -> None:
    whole = the_whole(0)
    known = replace(whole, trials=tuple(trial for trial in whole.trials if trial.seed == 0))
    first = wanted_by_the_answer(known)[0]
    running = next(trial for trial in whole.trials if trial.configuration == first and trial.seed == 1)
    running = replace(running, state=TrialState.RUNNING, metrics={}, values=None)
    assert wanted_by_the_answer(replace(known, trials=(*known.trials, running)))[0] != first


def test_what_was_only_ever_cut_short_goes_first_and_is_asked_for_once() -> None:
    whole = the_whole(1)
    cut = [
        trial(900 + window, 4, window, 0, {ACCURACY: 0.5}, state=TrialState.PRUNED, stopped_at=1000 * window)
        for window in (4, 8)
    ]
    known = replace(whole, trials=(*whole.trials, *cut))
    assert wanted_by_the_answer(known)[0] == "4-8"
    running = trial(999, 4, 8, 1, {}, state=TrialState.RUNNING, values=None)
    assert "4-8" not in wanted_by_the_answer(replace(known, trials=(*known.trials, running)))


def test_nothing_is_wanted_once_the_answer_is_certain() -> None:
    assert wanted_by_the_answer(the_whole(1)) == []


def test_looking_after_every_seed_keeps_what_95_percent_means() -> None:
    """Noise that grows with loops, stopped at the first certain answer: the hardest case for a pooled variance."""
    truths, claims, wrong = [MEANS, {1: [0.70], 2: [0.705, 0.70], 3: [0.70, 0.70]}], 0, 0
    for index in range(40):
        means, random = truths[index % 2], np.random.default_rng(500 + index)
        whole = simulate(means, {1: 0.004, 2: 0.01, 3: 0.02}, 5, random)
        runs: dict[str, list[TrialRecord]] = {}
        for one in whole.trials:
            runs.setdefault(one.configuration, []).append(one)
        seeds = dict.fromkeys(runs, 1)
        known = whole
        while True:
            known = replace(whole, trials=tuple(one for name, each in runs.items() for one in each[: seeds[name]]))
            wanted = [name for name in wanted_by_the_answer(known) if seeds[name] < 5]
            if not wanted:
                break
            seeds[wanted[0]] += 1
        found = recommend(known, look_ahead=False)
        claims += found.sure
        wrong += found.sure and found.loops != true_answer(means, 0.01)
    assert claims >= 15
    assert wrong <= 0.05 * claims
