"""What follows from a failure: pure functions from what is known to a decision."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

from workers.protocol import FailureReason


class Decision(StrEnum):
    """What the runner does after an attempt failed."""

    RETRY = "retry"
    """Run it again as the next attempt, from its last checkpoint."""
    FAIL = "fail"
    """Tell the study that the trial failed."""


_ATTEMPTS: Mapping[FailureReason, int] = {
    FailureReason.DIVERGED: 1,
    FailureReason.INVALID: 1,
    FailureReason.GPU_OOM: 2,
    FailureReason.HOST_OOM: 2,
    FailureReason.TIMEOUT: 2,
    FailureReason.WORKER_LOST: 6,
    FailureReason.PEER_LOST: 6,
    FailureReason.DEVICE: 6,
    FailureReason.DRIVER_LOST: 1_000_000,
    FailureReason.PREEMPTED: 1_000_000,
}
"""How often an attempt may end this way; exceptions have `max_attempts`.

What the same request would repeat is final. Memory and hangs get one more try, with halved micro-batches or a fresh
process. A lost worker is rarely the trial's fault, so it is not charged to `max_attempts`, but a trial that takes its
process down every time must end; so with a broken device, whose node is avoided. A lost driver, or a machine that was
taken away, says nothing of the trial.
"""


def decide(reasons: Sequence[FailureReason], max_attempts: int) -> Decision:
    """Whether a trial whose attempts failed for these reasons, the last one just now, gets another attempt."""
    last = reasons[-1]
    allowed = _ATTEMPTS.get(last, max_attempts)
    return Decision.RETRY if list(reasons).count(last) < allowed else Decision.FAIL


def halvings(reasons: Sequence[FailureReason]) -> int:
    """How often the next attempt halves its micro-batches: once per time that the GPU's memory was not enough."""
    return list(reasons).count(FailureReason.GPU_OOM)


def too_many_failures(finished: int, reasons: Counter[str], max_rate: float) -> str | None:
    """Why the study should stop, or None. Judged once at least five trials have finished.

    The reason that dominates is named, because that is what the person has to mend.
    """
    failed = reasons.total()
    if finished < 5 or failed / finished <= max_rate:
        return None
    reason, count = reasons.most_common(1)[0]
    return (
        f"{failed} of {finished} trials failed, more than max_failure_rate {max_rate:g} allows; "
        f"most often: {reason} ({count})"
    )
