"""One outcome from those of several workers."""

import pytest

from workers.gang_outcome import gang_outcome, is_known
from workers.protocol import Failure, FailureReason, TrialOutcome


def failed(reason: FailureReason, message: str = "why", **metrics: float) -> TrialOutcome:
    return TrialOutcome(metrics=metrics, failure=Failure(reason=reason, message=message))


def test_when_none_failed_it_is_what_rank_0_says() -> None:
    first = TrialOutcome(metrics={"val/loss": 1.0})
    assert gang_outcome({1: TrialOutcome(metrics={"val/loss": 2.0}), 0: first}) == first


def test_who_only_lost_the_others_is_not_the_reason_and_what_rank_0_knows_is_kept() -> None:
    found = gang_outcome({0: failed(FailureReason.PEER_LOST, known=1.0), 2: failed(FailureReason.GPU_OOM, "too much")})
    assert found == failed(FailureReason.GPU_OOM, "rank 2: too much", known=1.0)


def test_when_all_only_lost_each_other_that_is_said() -> None:
    found = gang_outcome({1: failed(FailureReason.PEER_LOST, "gone")})
    assert found == failed(FailureReason.PEER_LOST, "rank 1: gone")


@pytest.mark.parametrize(
    ("outcomes", "known"),
    [
        ({}, False),
        ({0: TrialOutcome()}, False),
        ({0: TrialOutcome(), 1: TrialOutcome()}, True),
        ({1: failed(FailureReason.PEER_LOST)}, False),
        ({1: failed(FailureReason.EXCEPTION)}, True),
    ],
)
def test_one_reason_is_enough(outcomes: dict[int, TrialOutcome], known: bool) -> None:
    assert is_known(outcomes, 2) is known
