"""What became of an attempt that several workers carried out: one outcome from what is known of each of them."""

from collections.abc import Mapping
from dataclasses import replace

from workers.protocol import FailureReason, TrialOutcome


def gang_outcome(outcomes: Mapping[int, TrialOutcome]) -> TrialOutcome:
    """The attempt's outcome from those of its workers by rank, as far as they are known.

    It failed if any of them did. Whoever only lost the others does not say why, so the reason is that of the first one
    that says something else. What rank 0 found out is kept.
    """
    whole = outcomes.get(0, TrialOutcome())
    failed = sorted((rank, each.failure) for rank, each in outcomes.items() if each.failure is not None)
    if not failed:
        return whole
    rank, failure = next((one for one in failed if one[1].reason is not FailureReason.PEER_LOST), failed[0])
    return replace(whole, failure=replace(failure, message=f"rank {rank}: {failure.message}"))


def is_known(outcomes: Mapping[int, TrialOutcome], workers: int) -> bool:
    """Whether nothing more needs to be waited for: all have ended, or one says why it could not go on."""
    reasons = {each.failure.reason for each in outcomes.values() if each.failure is not None}
    return len(outcomes) == workers or bool(reasons - {FailureReason.PEER_LOST})
