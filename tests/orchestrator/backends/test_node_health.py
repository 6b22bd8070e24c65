"""Which nodes are blamed for what, and for how long."""

import pytest

from orchestrator.backends.node_health import NodeHealth
from workers.protocol import FailureReason

R = FailureReason
LOST, RAISED, OUT_OF_MEMORY, BROKEN = R.WORKER_LOST, R.EXCEPTION, R.HOST_OOM, R.DEVICE


@pytest.mark.parametrize(
    ("ends", "avoided"),
    [
        ([("a", LOST), ("b", LOST)], False),
        ([("a", LOST), ("b", RAISED), ("b", OUT_OF_MEMORY)], True),
        ([("a", LOST)] * 5, False),  # one trial that fails everywhere says nothing of the node
        ([("a", LOST), ("b", LOST), ("c", None), ("d", LOST)], False),
        ([("a", LOST), ("b", LOST), ("c", R.DIVERGED), ("d", LOST)], False),  # it computed
        ([("a", LOST), ("b", LOST), ("c", R.PREEMPTED), ("d", LOST)], False),
        ([("a", BROKEN)], True),
        ([("a", R.GPU_OOM), ("b", R.INVALID), ("c", R.TIMEOUT), ("d", R.PEER_LOST)], False),
    ],
)
def test_a_node_is_avoided_after_failures_that_are_not_one_trials(
    ends: list[tuple[str, R | None]], avoided: bool
) -> None:
    health = NodeHealth()
    said = [health.ended("n1", trial, reason, 0.0) for trial, reason in ends]
    assert (list(health.avoided(599.0)) == ["n1"]) is avoided
    assert (said[-1] is not None) is avoided
    assert health.avoided(600.0) == {}


def test_it_gets_another_chance_and_is_avoided_for_twice_as_long_by_one_more_failure() -> None:
    health = NodeHealth()
    for trial in ("a", "b", "c"):
        health.ended("n1", trial, LOST, 0.0)
    said = health.ended("n1", "d", LOST, 700.0)
    assert said == "n1 is avoided for 20 min: its last 3 attempts failed, of 3 trials"
    assert list(health.avoided(700.0 + 1199)) == ["n1"]
    assert health.avoided(700.0 + 1200) == {}
    health.ended("n1", "e", None, 2000.0)
    assert [health.ended("n1", trial, LOST, 2000.0) for trial in ("f", "g")] == [None, None]


def test_every_node_is_judged_by_itself() -> None:
    health = NodeHealth()
    for trial, node in (("a", "n1"), ("b", "n2"), ("c", "n1"), ("d", "n2")):
        health.ended(node, trial, LOST, 0.0)
    assert health.avoided(0.0) == {}
    health.ended("n2", "e", LOST, 0.0)
    assert health.avoided(0.0) == {"n2": "its last 3 attempts failed, of 3 trials"}


def test_a_silent_node_is_avoided_for_a_while_and_no_longer() -> None:
    health = NodeHealth()
    health.silent("n1", 60.0, 0.0)
    assert health.avoided(59.0) == {"n1": "it does not answer"}
    assert health.avoided(60.0) == {}
