"""A trial that is stopped or killed anywhere, any number of times, ends with the numbers of an unbroken one."""

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from trials import (
    BATCH,
    STEPS,
    Clock,
    Unbroken,
    attempt,
    countdown,
    exact,
    make_trial,
    newest_state_of,
    run,
    same,
    weights,
)

from workers.attempt_folder import AttemptFolder
from workers.protocol import Ask, FailureReason, MetricReport, TrialRequest, never_stop


@pytest.fixture(autouse=True)
def own_device_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no benchmark that this user runs beside the tests."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def trial(tmp_path: Path) -> TrialRequest:
    return make_trial(tmp_path)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    """Reports, outcome and weights of the trial when nothing happens to it."""
    folder = tmp_path_factory.mktemp("unbroken")
    reports, outcome = run(make_trial(folder))
    assert outcome is not None
    assert outcome.failure is None
    return reports, outcome, weights(AttemptFolder(folder / "attempt-1").model)


@pytest.mark.parametrize(("seed", "per_look", "per_step"), [(0, 0, 0), (1, 1, 0), (2, 0, 61)])
def test_stopped_at_random_steps_it_ends_as_an_unbroken_one(
    trial: TrialRequest, unbroken: Unbroken, seed: int, per_look: float, per_step: float
) -> None:
    expected, whole, model = unbroken
    draw = random.Random(seed)
    clock = Clock(per_look)  # saves at every report, at some, or before every step
    reports: dict[int, MetricReport] = {}
    outcome, number = None, 0
    while outcome is None:
        number += 1
        assert number < 100
        stop = countdown(draw.randrange(2, 11), lambda: clock.wait(per_step)) if number < 20 else never_stop
        seen, outcome = run(attempt(trial, number), stop, clock)
        reports |= seen
        for step, report in seen.items():
            assert exact(report.metrics) == exact(expected[step].metrics)
    assert number > 2
    assert reports.keys() == expected.keys()
    assert exact(outcome.metrics) == exact(whole.metrics)
    assert same(weights(AttemptFolder(attempt(trial, number).folder).model), model)


@pytest.mark.parametrize(("per_step", "newest"), [(61.0, 7), (29.0, 6)])
def test_in_a_long_stretch_without_a_report_a_state_is_saved_nevertheless(
    trial: TrialRequest, per_step: float, newest: int
) -> None:
    trial = replace(trial, train=replace(trial.train, tokens=60 * BATCH * 16), evaluate_at=())
    expected, _ = run(replace(trial, folder=f"{trial.folder}-whole"), countdown(13))
    assert list(expected) == [3, 6, 9, 12]
    clock = Clock(0.0)
    run(trial, countdown(8, lambda: clock.wait(per_step)), clock)
    assert [path.name for path in AttemptFolder(trial.folder).states()] == [f"step-{newest:09d}"]
    reports, _ = run(attempt(trial, 2), countdown(13 - newest))
    assert {step: exact(each.metrics) for step, each in reports.items()} == {
        step: exact(each.metrics) for step, each in expected.items()
    }


KILLED = """
import os, pickle, signal, sys
from workers.execution import execute

request, steps = pickle.load(sys.stdin.buffer)
left = [steps]

def should_stop():
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return False

for item in execute(request, should_stop):
    pass
"""


def test_killed_processes_lose_nothing_that_was_saved(trial: TrialRequest, unbroken: Unbroken) -> None:
    expected, whole, model = unbroken
    draw = random.Random(1)
    for number in (1, 2):
        job = pickle.dumps((attempt(trial, number), draw.randrange(9, 15)))
        died = subprocess.run([sys.executable, "-c", KILLED], input=job, capture_output=True, check=False)
        assert died.returncode == -signal.SIGKILL, died.stderr
    reports, outcome = run(attempt(trial, 3))
    assert outcome is not None
    assert outcome.info["resumed"]["from"] == "attempt-2"
    assert outcome.info["resumed"]["step"] >= 10
    assert {step: exact(each.metrics) for step, each in reports.items()} == {
        step: exact(each.metrics) for step, each in expected.items()
    }  # also what only the killed processes reported, and nobody heard
    assert exact(outcome.metrics) == exact(whole.metrics)
    assert same(weights(AttemptFolder(attempt(trial, 3).folder).model), model)


def test_a_resumed_trial_computes_as_it_began(trial: TrialRequest) -> None:
    """Timing steps anew, with another result, would change the numbers."""
    trial = replace(trial, train=replace(trial.train, precision="auto", compile="auto"))
    run(trial, countdown(12), time.perf_counter)
    began = json.loads((newest_state_of(trial.folder) / "trainer.json").read_text())["plan"]
    _, outcome = run(attempt(trial, 2), clock=time.perf_counter)
    assert outcome is not None
    assert began["step_seconds"]
    assert outcome.info["plan"] == began


def test_time_spent_in_training_adds_up_over_attempts(trial: TrialRequest) -> None:
    reports, outcome = run(trial, countdown(STEPS // 2), Clock(0.5))
    assert outcome is None
    saved = AttemptFolder(trial.folder).states()[0]
    done = int(saved.name.removeprefix("step-"))
    assert done >= max(reports) > 0
    _, outcome = run(attempt(trial, 2), clock=Clock(0.5))
    assert outcome is not None
    assert outcome.metrics["train/seconds"] == STEPS * 0.5
    assert outcome.metrics["train/tokens"] == STEPS * BATCH * 16


def test_evaluations_are_reported_at_the_steps_that_reach_the_asked_tokens(trial: TrialRequest) -> None:
    rungs = (5 * BATCH * 16 - 3, 13 * BATCH * 16, 13 * BATCH * 16 + 1, 0, STEPS * BATCH * 16 * 9)
    reports, outcome = run(replace(trial, evaluate_at=rungs))
    evaluated = [step for step, report in reports.items() if "val/loss" in report.metrics]
    assert evaluated == [5, 12, 13, 14, 24]
    assert outcome is not None
    assert outcome.failure is None


def test_a_stopped_trial_ends_before_the_next_step_without_an_outcome(trial: TrialRequest) -> None:
    asked: list[int] = []

    def should_stop() -> bool:
        asked.append(len(asked))
        return len(asked) > 7

    reports, outcome = run(trial, should_stop)
    assert outcome is None
    assert len(asked) == 8
    assert max(reports) <= 7
    assert not AttemptFolder(trial.folder).model.exists()
    assert run(attempt(trial, 2))[1] is not None  # the device lock is free again


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "optimizer cut": lambda state: truncate(state / "optimizer.safetensors"),
    "weights cut": lambda state: truncate(state / "model" / "model.safetensors"),
    "facts cut": lambda state: truncate(state / "trainer.json"),
    "facts empty": lambda state: (state / "trainer.json").write_text("{}"),
    "random missing": lambda state: (state / "random.safetensors").unlink(),
    "random of another kind": lambda state: (state / "random.safetensors").write_bytes(
        (state / "optimizer.safetensors").read_bytes()
    ),
    "optimizer of another kind": lambda state: (state / "optimizer.safetensors").write_bytes(
        (state / "random.safetensors").read_bytes()
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_skipped_said_and_replaced_by_an_older_one_or_a_fresh_start(
    trial: TrialRequest, unbroken: Unbroken, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, whole, model = unbroken
    run(trial, countdown(12))
    DAMAGES[damage](newest_state_of(trial.folder))
    _, outcome = run(attempt(trial, 2))
    assert outcome is not None
    assert "resumed" not in outcome.info
    (said,) = outcome.info["skipped_states"]
    assert "\n" not in said
    assert str(newest := Path(trial.folder) / "state") in said, newest
    assert said in capsys.readouterr().out
    assert exact(outcome.metrics) == exact(whole.metrics)
    assert same(weights(AttemptFolder(attempt(trial, 2).folder).model), model)


def test_behind_a_damaged_state_an_older_attempt_s_is_used(trial: TrialRequest) -> None:
    run(trial, countdown(12))
    third = attempt(trial, 3)
    run(replace(third, folder=third.resume_from[0], resume_from=()), countdown(20))
    truncate(newest_state_of(third.resume_from[0]) / "trainer.json")
    _, outcome = run(third)
    assert outcome is not None
    assert outcome.info["resumed"]["from"] == "attempt-1"
    assert len(outcome.info["skipped_states"]) == 1


def test_another_trial_s_state_is_not_resumed(trial: TrialRequest) -> None:
    run(trial, countdown(12))
    _, outcome = run(replace(attempt(trial, 2), seed=8))
    assert outcome is not None
    assert "resumed" not in outcome.info
    assert "seed is 7 there and 8 here" in outcome.info["skipped_states"][0]


@pytest.mark.parametrize(("halvings", "size"), [(1, 4), (2, 2), (3, 1), (9, 1)])
def test_halved_micro_batches_train_on_the_same_batches(
    trial: TrialRequest, unbroken: Unbroken, halvings: int, size: int
) -> None:
    expected, _, _ = unbroken
    reports, outcome = run(replace(trial, halvings=halvings))
    assert outcome is not None
    assert outcome.info["plan"]["micro_batch_size"] == size
    assert outcome.metrics["train/tokens"] == STEPS * BATCH * 16
    assert reports.keys() == expected.keys()
    for step in (2, 4, 6):
        assert reports[step].metrics["train/loss"] == pytest.approx(expected[step].metrics["train/loss"], rel=1e-4)


def test_a_trial_goes_on_with_halved_micro_batches(trial: TrialRequest, unbroken: Unbroken) -> None:
    run(trial, countdown(12))
    expected, _, _ = unbroken
    reports, outcome = run(replace(attempt(trial, 2), halvings=1))
    assert outcome is not None
    assert outcome.info["resumed"]["step"] > 5
    assert outcome.info["plan"]["micro_batch_size"] == 4
    assert reports[20].metrics["train/loss"] == pytest.approx(expected[20].metrics["train/loss"], rel=1e-2)


def test_a_trial_that_is_asked_to_leave_saves_a_state_first_and_ends_as_an_unbroken_one(
    trial: TrialRequest, unbroken: Unbroken
) -> None:
    expected, whole, model = unbroken
    step, left = -1, -1

    def leave() -> Ask:
        nonlocal step, left
        step += 1
        if left < 0 and step >= 8 and not AttemptFolder(trial.folder).state_at(step).exists():
            left = step
        return Ask.LEAVE if left >= 0 else Ask.GO_ON

    reports, outcome = run(trial, leave, Clock(5))
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.PREEMPTED
    assert outcome.failure.message == f"the machine is being taken away; a state was saved at step {left} of {STEPS}"
    assert not AttemptFolder(trial.folder).model.exists()
    again, outcome = run(attempt(trial, 2))
    assert outcome is not None
    assert outcome.info["resumed"] == {"step": left, "from": "attempt-1"}
    assert (reports | again).keys() == expected.keys()
    assert exact(outcome.metrics) == exact(whole.metrics)
    assert same(weights(AttemptFolder(attempt(trial, 2).folder).model), model)


def test_who_leaves_and_cannot_save_says_so(trial: TrialRequest) -> None:
    def leave() -> Ask:
        Path(trial.folder).mkdir(exist_ok=True)
        AttemptFolder(trial.folder).state.write_text("in the way")
        return Ask.LEAVE

    _, outcome = run(trial, leave)
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.PREEMPTED
    assert "not saved: " in outcome.failure.message
