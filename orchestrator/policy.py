"""What follows from a failure: pure functions from what is known to a decision."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from workers.protocol import Failure, FailureReason


class Decision(StrEnum):
    """What the runner does after an attempt failed."""

    RETRY = "retry"
    """Run the trial again as the next attempt."""
    FAIL = "fail"
    """Tell the study that the trial failed."""


_FINAL = frozenset({FailureReason.DIVERGED, FailureReason.GPU_OOM, FailureReason.INVALID})
"""The same request would end the same way."""


def decide(failure: Failure, attempts: int, max_attempts: int) -> Decision:
    """Whether a trial that has had `attempts` executions gets another one."""
    if failure.reason in _FINAL or attempts >= max_attempts:
        return Decision.FAIL
    return Decision.RETRY


def too_many_failures(finished: int, failures: Iterable[Mapping[str, str]], max_rate: float) -> str | None:
    """Why the study should stop, or None. Judged once at least five trials have finished.

    The reason that dominates is named, because that is what the person has to mend.
    """
    reasons = Counter(failure["reason"] for failure in failures)
    failed = reasons.total()
    if finished < 5 or failed / finished <= max_rate:
        return None
    reason, count = reasons.most_common(1)[0]
    return (
        f"{failed} of {finished} trials failed, more than max_failure_rate {max_rate:g} allows; "
        f"most often: {reason} ({count})"
    )
