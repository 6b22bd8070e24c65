"""What Ray and the kernel say of a death becomes one reason and one line."""

import pytest
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    NodeDiedError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from orchestrator.backends.ray_death import describe_death, may_be_for_memory
from workers.protocol import FailureReason

KILLED = (
    "The actor died unexpectedly before finishing this task.\n\tclass_name: Worker\n\tpid: 12\nThe actor is dead "
    "because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits "
    "with a connection error code 2. End of file. Some common causes include: (1) the process was killed by the "
    "OOM killer due to high memory usage, (2) ray stop --force was called, or (3) something else."
)
NODE_GONE = "The actor died unexpectedly.\nThe actor died because its node has died. Node Id: ab, Ip: 10.0.0.2"
STARTED_BADLY = "The actor died because of an error raised in its creation task, ray::W()\nOSError: no space"


def named(kind: type[RayError], text: str) -> RayError:
    """An error of that kind, however Ray itself would make one."""
    return type(kind.__name__, (kind,), {"__str__": lambda _: text, "__init__": lambda _: None})()


@pytest.mark.parametrize(
    ("error", "node_died", "oom_killed", "reason", "words"),
    [
        (named(OutOfMemoryError, "Task was killed due to the node running low on memory.\nx"), False, False,
         FailureReason.HOST_OOM, "out of memory on n1: Task was killed due to the node running low on memory."),
        (named(ActorDiedError, KILLED), False, True, FailureReason.HOST_OOM, "the kernel killed the worker"),
        (named(WorkerCrashedError, "crashed"), False, True, FailureReason.HOST_OOM, "the kernel killed the worker"),
        (named(ActorUnavailableError, "The actor was restarted"), False, True, FailureReason.HOST_OOM, "kernel"),
        (named(ActorDiedError, KILLED), False, False, FailureReason.WORKER_LOST,
         "on n1 died: Worker unexpectedly exits with a connection error code 2. End of file."),
        (named(WorkerCrashedError, "crashed"), False, False, FailureReason.WORKER_LOST, "on n1 died: crashed"),
        (named(ActorUnavailableError, "The actor was restarted"), False, False, FailureReason.WORKER_LOST, "restarted"),
        (named(ActorDiedError, KILLED), True, True, FailureReason.WORKER_LOST, "the node of the worker died: n1"),
        (named(ActorDiedError, NODE_GONE), False, False, FailureReason.WORKER_LOST, "the node of the worker died: n1"),
        (named(NodeDiedError, "gone"), False, False, FailureReason.WORKER_LOST, "the node of the worker died: n1"),
        (named(ActorDiedError, STARTED_BADLY), False, False, FailureReason.EXCEPTION,
         "a worker could not start: OSError: no space"),
        (named(RayTaskError, "\x1b[36mray::run()\x1b[39m\nValueError: bad"), False, False, FailureReason.EXCEPTION,
         "ValueError: bad"),
    ],
)  # fmt: skip
def test_every_death_has_its_reason_in_one_line(
    error: RayError, node_died: bool, oom_killed: bool, reason: FailureReason, words: str
) -> None:
    failure = describe_death(error, node="n1", node_died=node_died, oom_killed=oom_killed).failure
    assert failure is not None
    assert failure.reason is reason
    assert words in failure.message
    assert "\n" not in failure.message
    assert "OOM killer" not in failure.message
    assert "\x1b" not in failure.message + failure.traceback


def test_the_kernel_is_asked_only_where_ray_does_not_know() -> None:
    assert may_be_for_memory(named(ActorDiedError, KILLED))
    assert may_be_for_memory(named(WorkerCrashedError, "crashed"))
    assert may_be_for_memory(named(ActorUnavailableError, "restarted"))
    assert not may_be_for_memory(named(OutOfMemoryError, "low on memory"))
    assert not may_be_for_memory(named(ActorDiedError, STARTED_BADLY))
    assert not may_be_for_memory(named(NodeDiedError, "gone"))
