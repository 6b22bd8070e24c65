"""What follows from a failure, as a table."""

from collections import Counter

import pytest

from orchestrator.policy import Decision, decide, halvings, too_many_failures
from workers.protocol import FailureReason

R = FailureReason


@pytest.mark.parametrize(
    ("reasons", "decision"),
    [
        ([R.DIVERGED], Decision.FAIL),
        ([R.INVALID], Decision.FAIL),
        ([R.GPU_OOM], Decision.RETRY),
        ([R.GPU_OOM, R.GPU_OOM], Decision.FAIL),
        ([R.HOST_OOM], Decision.RETRY),
        ([R.HOST_OOM, R.HOST_OOM], Decision.FAIL),
        ([R.TIMEOUT], Decision.RETRY),
        ([R.TIMEOUT, R.TIMEOUT], Decision.FAIL),
        ([R.EXCEPTION] * 2, Decision.RETRY),
        ([R.EXCEPTION] * 3, Decision.FAIL),
        ([R.WORKER_LOST] * 5, Decision.RETRY),
        ([R.WORKER_LOST] * 6, Decision.FAIL),
        ([R.DRIVER_LOST] * 50, Decision.RETRY),
        ([R.PREEMPTED] * 50, Decision.RETRY),
        ([R.PREEMPTED] * 50 + [R.EXCEPTION] * 3, Decision.FAIL),
        ([R.DEVICE] * 5, Decision.RETRY),
        ([R.DEVICE] * 6, Decision.FAIL),
        ([R.WORKER_LOST] * 4 + [R.DRIVER_LOST] * 9 + [R.EXCEPTION] * 2, Decision.RETRY),
        ([R.EXCEPTION] * 2 + [R.WORKER_LOST] * 5, Decision.RETRY),
        ([R.GPU_OOM, R.EXCEPTION, R.DIVERGED], Decision.FAIL),
    ],
)
def test_each_reason_has_its_own_count(reasons: list[FailureReason], decision: Decision) -> None:
    assert decide(reasons, max_attempts=3) is decision


def test_every_reason_is_decided_and_none_for_ever() -> None:
    for reason in FailureReason:
        if reason not in (FailureReason.DRIVER_LOST, FailureReason.PREEMPTED):  # not for the trial's doing
            assert decide([reason] * 20, max_attempts=3) is Decision.FAIL


def test_micro_batches_are_halved_once_per_lack_of_gpu_memory() -> None:
    assert halvings([]) == 0
    assert halvings([R.EXCEPTION, R.GPU_OOM, R.WORKER_LOST]) == 1


def test_too_many_failures_are_judged_after_five_trials_and_name_what_dominates() -> None:
    reasons = Counter({"diverged": 2, "exception": 1})
    assert too_many_failures(4, reasons, 0.2) is None
    assert too_many_failures(15, reasons, 0.2) is None
    message = too_many_failures(14, reasons, 0.2)
    assert message is not None
    assert "3 of 14" in message
    assert "diverged (2)" in message
