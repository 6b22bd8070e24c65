"""Small workloads for backend tests; importable, so that actors can run them too.

A probe does as its attempt id says, `KIND-ANYTHING` or `KIND-ANYTHING@PATH`. Waiting is done on named pipes: who
holds one waits until somebody has opened it to write.
"""

import logging
import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from workers.protocol import Failure, FailureReason, MetricReport, Request, ShouldStop, TrialOutcome

Stream = Iterator[MetricReport | TrialOutcome]
KEPT: list[bytearray] = []


def probe(request: Request, should_stop: ShouldStop) -> Stream:
    """Behave as the attempt id says."""
    kind = request.attempt_id.partition("-")[0]
    return PROBES[kind](request, should_stop)


def path_of(request: Request) -> Path:
    return Path(request.attempt_id.partition("@")[2])


def report(step: int) -> MetricReport:
    metrics = {"train/loss": 1.0 / (step + 1), "pid": float(os.getpid())}
    return MetricReport(step=step, tokens=step * 10, metrics=metrics, seconds=float(step))


def outcome(request: Request) -> TrialOutcome:
    return TrialOutcome(metrics={"pid": float(os.getpid())}, info={"id": request.attempt_id}, seconds=1.0)


def ok(request: Request, _: ShouldStop) -> Stream:
    yield from map(report, range(3))
    yield outcome(request)


def raising(_request: Request, _stop: ShouldStop) -> Stream:
    yield report(0)
    raise ValueError("a probe that raises")


def dying(_request: Request, _stop: ShouldStop) -> Stream:
    yield report(0)
    os.kill(os.getpid(), signal.SIGKILL)


def mute(_request: Request, _stop: ShouldStop) -> Stream:
    yield report(0)


def failing(_request: Request, _stop: ShouldStop) -> Stream:
    yield report(0)
    yield TrialOutcome(failure=Failure(reason=FailureReason.DIVERGED, message="loss is nan"))


def endless(request: Request, should_stop: ShouldStop) -> Stream:
    """Report until asked to stop, then leave a trace."""
    step = 0
    try:
        while not should_stop():
            yield report(step)
            step += 1
    finally:
        path_of(request).touch()


def deaf(_request: Request, _stop: ShouldStop) -> Stream:
    """Report once, then do nothing for ever."""
    yield report(0)
    threading.Event().wait()


def hold(request: Request, _: ShouldStop) -> Stream:
    """Open the pipe, report once, then wait until somebody has opened it to write and closed it again."""
    handle = os.open(path_of(request), os.O_RDONLY | os.O_NONBLOCK)
    yield report(0)
    writer = select.poll()
    writer.register(handle, 0)  # hanging up is always told, and only once there was somebody
    writer.poll()
    os.close(handle)
    yield report(1)
    yield outcome(request)


def knock(request: Request, _: ShouldStop) -> Stream:
    """Open the pipe that another probe holds: neither ends without the other."""
    path_of(request).write_bytes(b"")
    yield outcome(request)


def talking(request: Request, _: ShouldStop) -> Stream:
    """Say something in every way."""
    print("printed to stdout")
    print("printed to stderr", file=sys.stderr)
    yield report(1)
    logging.getLogger("probe").warning("logged")
    warnings.warn("warned", stacklevel=1)
    yield outcome(request)


def growing(request: Request, _: ShouldStop) -> Stream:
    """Keep 200 MB more with every attempt."""
    KEPT.append(bytearray(os.urandom(1_000_000)) * 200)
    yield outcome(request)


def starving(_request: Request, _stop: ShouldStop) -> Stream:
    """Be killed by the kernel for want of memory, in a control group of this process's own."""
    group = Path(f"/sys/fs/cgroup/memory/probe-{os.getpid()}")
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(600_000_000))
    yield report(0)
    (group / "cgroup.procs").write_text(str(os.getpid()))
    KEPT.append(bytearray(os.urandom(1_000_000)) * 4000)


PROBES: dict[str, Callable[[Request, ShouldStop], Stream]] = {
    "ok": ok,
    "raise": raising,
    "die": dying,
    "mute": mute,
    "fail": failing,
    "endless": endless,
    "deaf": deaf,
    "hold": hold,
    "knock": knock,
    "talk": talking,
    "grow": growing,
    "starve": starving,
}


def probe_hardware() -> dict[str, object]:
    """A made-up device."""
    return {"device": "probe"}
