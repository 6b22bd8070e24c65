"""What the death of a Ray worker means, in one line, from what Ray and the kernel say of it.

Ray names a death for want of memory in three ways: `OutOfMemoryError` when its own monitor killed the worker;
`ActorDiedError` or `WorkerCrashedError` when the kernel did; `ActorUnavailableError` when the actor had restarted. The
last three say nothing of memory (their text lists it among the usual causes of any death), so there the kernel's own
count of such kills on the node decides.
"""

import re

from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    NodeDiedError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from workers.protocol import Failure, FailureReason, TrialOutcome

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_DETAIL = re.compile(r"Worker exit detail: (.*?)(?: Some common causes|$)", re.DOTALL)
_NODE_DIED = re.compile(r"node (?:has|was) (?:died|dead)|its node", re.IGNORECASE)


def may_be_for_memory(error: RayError) -> bool:
    """Whether only the kernel's count can tell if the worker was killed for want of memory."""
    if isinstance(error, ActorDiedError) and _started_badly(error):
        return False
    return isinstance(error, ActorDiedError | WorkerCrashedError | ActorUnavailableError)


def describe_death(error: RayError, *, node: str, node_died: bool, oom_killed: bool) -> TrialOutcome:
    """The outcome of an attempt whose worker on `node` ended with `error`."""
    if isinstance(error, RayTaskError):
        return failed(FailureReason.EXCEPTION, last_line(error), plain(error))
    if isinstance(error, OutOfMemoryError):
        return failed(FailureReason.HOST_OOM, f"out of memory on {node}: {first_line(error)}", plain(error))
    if isinstance(error, ActorDiedError) and _started_badly(error):
        return failed(FailureReason.EXCEPTION, f"a worker could not start: {last_line(error)}", plain(error))
    if node_died or isinstance(error, NodeDiedError) or _NODE_DIED.search(str(error)):
        return failed(FailureReason.WORKER_LOST, f"the node of the worker died: {node}", plain(error))
    if oom_killed:
        message = f"out of memory on {node}: the kernel killed the worker; run fewer at once, or smaller ones"
        return failed(FailureReason.HOST_OOM, message, plain(error))
    return failed(FailureReason.WORKER_LOST, f"the worker process on {node} died: {_detail(error)}", plain(error))


def failed(reason: FailureReason, message: str, traceback: str = "") -> TrialOutcome:
    """The outcome of an attempt that gave none itself."""
    return TrialOutcome(failure=Failure(reason=reason, message=message, traceback=traceback))


def first_line(error: BaseException) -> str:
    """What the error says first."""
    return plain(error).splitlines()[0]


def last_line(error: BaseException) -> str:
    """What the error says last."""
    return plain(error).splitlines()[-1]


def plain(error: BaseException) -> str:
    """The error's text without terminal colours."""
    return _ANSI.sub("", str(error)).strip() or type(error).__name__


def _started_badly(error: ActorDiedError) -> bool:
    return "creation task" in str(error)


def _detail(error: RayError) -> str:
    """How the process ended, without Ray's list of what may have been the cause."""
    found = _DETAIL.search(plain(error))
    return " ".join(found[1].split()) if found else first_line(error)
