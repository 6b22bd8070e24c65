import pytest

from orchestrator.policy import Decision, decide, too_many_failures
from workers.protocol import Failure, FailureReason


@pytest.mark.parametrize(
    ("reason", "attempts", "decision"),
    [
        (FailureReason.DIVERGED, 1, Decision.FAIL),
        (FailureReason.GPU_OOM, 1, Decision.FAIL),
        (FailureReason.INVALID, 1, Decision.FAIL),
        (FailureReason.EXCEPTION, 1, Decision.RETRY),
        (FailureReason.EXCEPTION, 2, Decision.RETRY),
        (FailureReason.EXCEPTION, 3, Decision.FAIL),
        (FailureReason.WORKER_LOST, 2, Decision.RETRY),
        (FailureReason.HOST_OOM, 3, Decision.FAIL),
    ],
)
def test_decisions(reason: FailureReason, attempts: int, decision: Decision) -> None:
    assert decide(Failure(reason=reason, message="x"), attempts, max_attempts=3) is decision


def test_failure_rate_needs_five_trials_and_names_the_dominant_reason() -> None:
    failures = [{"reason": "exception"}, {"reason": "diverged"}, {"reason": "exception"}]
    assert too_many_failures(4, failures, 0.2) is None
    assert too_many_failures(15, failures, 0.2) is None
    message = too_many_failures(5, failures, 0.2)
    assert message is not None
    assert "3 of 5" in message
    assert "exception (2)" in message
