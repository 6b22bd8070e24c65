"""What every tracker must do, said once and run on each."""

import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from orchestrator.home import Home
from orchestrator.records import AttemptRecord, StudyState, TrialState
from orchestrator.tracking.memory_tracker import MemoryTracker
from orchestrator.tracking.mlflow_tracker import MlflowTracker
from orchestrator.tracking.tracked_run import RunStatus
from workers.protocol import MetricReport

AnyTracker = MemoryTracker | MlflowTracker
Make = Callable[..., Any]


@pytest.fixture(params=["memory", "mlflow"])
def tracker(request: pytest.FixtureRequest, home: Home) -> Iterator[AnyTracker]:
    made: AnyTracker = MemoryTracker("loops") if request.param == "memory" else MlflowTracker(home, "loops")
    yield made
    made.close()


def report(step: int, **metrics: float) -> MetricReport:
    named = {name.replace("_", "/", 1): value for name, value in metrics.items()}
    return MetricReport(step=step, tokens=step * 1024, metrics=named, seconds=step / 10)


def test_a_trial_becomes_one_run_with_its_configuration(
    tracker: AnyTracker, make_study: Make, make_trial: Make, complete: Make
) -> None:
    tracker.start_study(make_study(make_trial(3)))
    tracker.start_trial(make_trial(3))
    tracker.finish_trial(complete(3))

    [run] = tracker.runs()
    assert run.number == 3
    assert run.status is RunStatus.FINISHED
    assert run.params == {"num_loops": "2", "lr": "0.003", "seed": "1", "configuration": "configuration-1"}
    assert run.metrics == {"val/bits_per_byte": 5.0, "decode/ms_per_token": 5.5}
    assert run.tags["plt.state"] == "COMPLETE"
    assert run.tags["info.versions.torch"] == "2.13"
    assert "version.torch" in run.tags
    assert run.started == complete(3).started
    assert run.ended == complete(3).ended


def test_said_twice_leaves_one_run(tracker: AnyTracker, make_study: Make, make_trial: Make, complete: Make) -> None:
    for _ in range(2):
        tracker.start_study(make_study())
        tracker.start_trial(make_trial(0))
        tracker.finish_trial(complete(0))

    [run] = tracker.runs()
    assert run.status is RunStatus.FINISHED
    assert len(tracker.history(0, "val/bits_per_byte")) <= 1


def test_curves_arrive_whole_and_in_order(tracker: AnyTracker, make_study: Make, make_trial: Make) -> None:
    tracker.start_study(make_study())
    tracker.start_trial(make_trial(0))
    tracker.start_trial(make_trial(1))
    for step in range(1, 301):
        for number in (0, 1):
            tracker.report(number, report(step, train_loss=number + 1 / step))

    for number in (0, 1):
        curve = tracker.history(number, "train/loss")
        assert [point.step for point in curve] == list(range(1, 301))
        assert [point.value for point in curve] == [number + 1 / step for step in range(1, 301)]
        assert tracker.history(number, "progress/tokens")[-1].value == 300 * 1024
    assert tracker.history(0, "no/such") == []


def test_steps_repeated_after_a_resume_leave_one_curve(tracker: AnyTracker, make_study: Make, make_trial: Make) -> None:
    tracker.start_study(make_study())
    tracker.start_trial(make_trial(0))
    for step, loss in ((1, 3.0), (2, 2.5), (3, 2.4)):
        tracker.report(0, report(step, train_loss=loss))
    tracker.start_trial(make_trial(0))
    for step, loss in ((2, 2.6), (3, 2.3), (4, 2.2)):
        tracker.report(0, report(step, train_loss=loss))

    curve = {point.step: point.value for point in tracker.history(0, "train/loss")}
    assert curve == {1: 3.0, 2: 2.6, 3: 2.3, 4: 2.2}


def test_numbers_that_are_not_finite_are_gaps_and_never_final(
    tracker: AnyTracker, make_study: Make, make_trial: Make
) -> None:
    tracker.start_study(make_study())
    tracker.start_trial(make_trial(0))
    tracker.report(0, report(1, train_loss=3.0))
    tracker.report(0, report(2, train_loss=math.inf))
    tracker.report(0, report(3, train_loss=math.nan))
    failure = {"reason": "diverged", "message": "train/loss is inf at step 2", "traceback": ""}
    metrics = {"val/bits_per_byte": math.inf, "train/loss": math.nan, "kv/bytes_per_sequence": 4096.0}
    tracker.finish_trial(make_trial(0, state=TrialState.FAIL, metrics=metrics, failure=failure))

    [run] = tracker.runs()
    assert run.status is RunStatus.FAILED
    assert "val/bits_per_byte" not in run.metrics
    assert run.metrics["kv/bytes_per_sequence"] == 4096.0
    assert run.tags["plt.failure.reason"] == "diverged"
    assert run.tags["plt.failure.message"] == "train/loss is inf at step 2"
    values = [point.value for point in tracker.history(0, "train/loss")]
    assert values[0] == 3.0
    assert all(math.isnan(value) for value in values[1:])


def test_a_final_metric_wins_over_the_last_report(tracker: AnyTracker, make_study: Make, complete: Make) -> None:
    tracker.start_study(make_study())
    tracker.start_trial(complete(0, state=TrialState.RUNNING))
    tracker.report(0, MetricReport(step=70, tokens=1, metrics={"val/bits_per_byte": 9.0}, seconds=1.0))
    tracker.finish_trial(complete(0))

    [run] = tracker.runs()
    assert run.metrics["val/bits_per_byte"] == 2.0
    assert run.metrics["decode/ms_per_token"] == 5.5


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (TrialState.COMPLETE, RunStatus.FINISHED),
        (TrialState.PRUNED, RunStatus.FINISHED),
        (TrialState.FAIL, RunStatus.FAILED),
        (TrialState.RUNNING, RunStatus.KILLED),
    ],
)
def test_states_end_runs(
    tracker: AnyTracker, make_study: Make, make_trial: Make, state: TrialState, status: RunStatus
) -> None:
    tracker.start_study(make_study())
    tracker.finish_trial(make_trial(0, state=state))

    [run] = tracker.runs()
    assert run.status is status
    assert run.tags["plt.state"] == state.value
    assert run.ended is not None


def test_a_retried_trial_runs_again_and_forgets_its_failure(
    tracker: AnyTracker, make_study: Make, make_trial: Make, complete: Make
) -> None:
    tracker.start_study(make_study())
    tracker.finish_trial(make_trial(0, state=TrialState.FAIL, failure={"reason": "timeout", "message": "slow"}))
    tracker.start_trial(make_trial(0))
    assert [run.status for run in tracker.runs()] == [RunStatus.RUNNING]
    attempts = tuple(AttemptRecord(number=number, started=complete(0).started) for number in (1, 2))
    tracker.finish_trial(complete(0, attempts=attempts))

    [run] = tracker.runs()
    assert run.status is RunStatus.FINISHED
    assert run.tags["plt.attempt"] == "2"
    assert run.tags["plt.failure.reason"] == ""


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (StudyState.COMPLETE, RunStatus.FINISHED),
        (StudyState.INTERRUPTED, RunStatus.KILLED),
        (StudyState.FAILED, RunStatus.FAILED),
    ],
)
def test_the_end_of_a_study_leaves_nothing_running(
    tracker: AnyTracker, make_study: Make, make_trial: Make, complete: Make, state: StudyState, status: RunStatus
) -> None:
    tracker.start_study(make_study())
    tracker.finish_trial(complete(0))
    tracker.start_trial(make_trial(1))
    tracker.finish_study(make_study(complete(0), make_trial(1), state=state, message="why it ended"))

    assert [run.status for run in tracker.runs()] == [RunStatus.FINISHED, RunStatus.KILLED]
    parent = tracker.parent()
    assert parent is not None
    assert parent.status is status
    assert parent.tags["plt.message"] == "why it ended"
    assert parent.metrics["configurations"] == 1.0
    assert parent.metrics["trials/complete"] == 1.0
    assert parent.metrics["trials/running"] == 1.0


def test_a_continued_study_keeps_its_parent(tracker: AnyTracker, make_study: Make) -> None:
    tracker.start_study(make_study())
    first = tracker.parent()
    tracker.finish_study(make_study(state=StudyState.INTERRUPTED))
    tracker.start_study(make_study(budget=8))

    again = tracker.parent()
    assert first is not None
    assert again is not None
    assert again.run_id == first.run_id
    assert again.status is RunStatus.RUNNING
    assert again.tags["plt.budget"] == "8"


def test_reconcile_makes_the_runs_equal_the_record(
    tracker: AnyTracker, make_study: Make, make_trial: Make, complete: Make
) -> None:
    tracker.start_study(make_study())
    for number in (0, 1, 2, 9):
        tracker.start_trial(make_trial(number))
    tracker.report(1, report(5, train_loss=1.5))
    pruned = make_trial(3, state=TrialState.PRUNED, ended=make_trial(3).started + timedelta(seconds=5))
    waiting = make_trial(4, state=TrialState.WAITING)
    record = make_study(complete(0), make_trial(1), make_trial(2), pruned, waiting)

    for _ in range(2):
        tracker.reconcile(record, owned=[1])

        by_number = {run.number: run for run in tracker.runs()}
        assert {number: run.status for number, run in by_number.items()} == {
            0: RunStatus.FINISHED,
            1: RunStatus.RUNNING,
            2: RunStatus.KILLED,
            3: RunStatus.FINISHED,
            9: RunStatus.KILLED,
        }
        assert by_number[0].metrics["val/bits_per_byte"] == 2.0
        assert by_number[3].params["num_loops"] == "2"
        assert by_number[3].ended == pruned.ended
        assert [point.value for point in tracker.history(1, "train/loss")] == [1.5]
