"""A trial's workers as processes of this machine, started for one attempt and ended with it.

    for item in run_together(request, execute, should_stop): ...      rank 0's reports, then one outcome

Every process gets a GPU of its own where there are any. One that dies, or fails, ends the attempt: the others are ended
too. Closing the generator, or the end of this process, ends them all.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from typing import Any

from workers.gang_outcome import gang_outcome, is_known
from workers.output import captured
from workers.protocol import (
    Execute,
    Failure,
    FailureReason,
    MetricReport,
    ShouldStop,
    TrialOutcome,
    TrialRequest,
)

LOOK_SECONDS = 0.2
"""How often it is asked whether to stop."""
GRACE_SECONDS = 5.0
"""For processes to end by themselves, and to say what ended them."""
_GPUS = "CUDA_VISIBLE_DEVICES"


@dataclass
class _Member:
    rank: int
    process: SpawnProcess
    sent: Connection


def run_together(
    request: TrialRequest, execute: Execute | None, should_stop: ShouldStop
) -> Iterator[MetricReport | TrialOutcome]:
    """Reports of rank 0, then exactly one outcome; none if it was asked to stop.

    `execute` must be importable by the processes; None is `workers.execution.execute`.
    """
    assert request.gang is not None
    refusal = _too_few_gpus(request.gang.workers)
    if refusal is not None:
        yield TrialOutcome(failure=Failure(reason=FailureReason.INVALID, message=refusal))
        return
    with _started(request, execute) as (members, stop):
        outcomes: dict[int, TrialOutcome] = {}
        until = float("inf")
        while not is_known(outcomes, len(members)) and time.monotonic() < until:
            if should_stop():
                stop.set()
            for member in _ready([each for each in members if each.rank not in outcomes]):
                item = _received(member)
                if isinstance(item, MetricReport) and member.rank == 0:
                    yield item
                elif isinstance(item, TrialOutcome):
                    outcomes[member.rank] = item
                elif item is None and stop.is_set():
                    return
                elif item is None:
                    outcomes[member.rank] = _lost(member)
            if any(each.failure is not None for each in outcomes.values()):
                until = min(until, time.monotonic() + GRACE_SECONDS)
        yield gang_outcome(outcomes)


def _too_few_gpus(workers: int) -> str | None:
    import torch

    have = torch.cuda.device_count()
    if not 0 < have < workers:
        return None
    return (
        f"{workers} workers need {workers} GPUs, and this machine has {have}; use --backend ray with a cluster, "
        f"fewer workers, or none of the GPUs ({_GPUS}=)"
    )


@contextmanager
def _started(request: TrialRequest, execute: Execute | None) -> Iterator[tuple[list[_Member], Event]]:
    """A process for each worker; all have ended when this has."""
    assert request.gang is not None
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    members: list[_Member] = []
    try:
        for rank in range(request.gang.workers):
            mine, theirs = context.Pipe(duplex=False)
            own = replace(request, gang=replace(request.gang, rank=rank))
            process = context.Process(target=_work, args=(own, execute, theirs, stop), name=f"rank-{rank}", daemon=True)
            process.start()
            theirs.close()
            members.append(_Member(rank, process, mine))
        yield members, stop
    finally:
        stop.set()
        until = time.monotonic() + GRACE_SECONDS
        for member in members:
            member.process.join(max(0.0, until - time.monotonic()))
            if member.process.is_alive():
                member.process.kill()
                member.process.join()
            member.sent.close()


def _ready(members: list[_Member]) -> list[_Member]:
    ready = wait([member.sent for member in members], LOOK_SECONDS)
    return [member for member in members if member.sent in ready]


def _received(member: _Member) -> MetricReport | TrialOutcome | None:
    """What it sent; None once it has ended."""
    try:
        item: MetricReport | TrialOutcome = member.sent.recv()
    except (EOFError, OSError):
        return None
    return item


def _lost(member: _Member) -> TrialOutcome:
    member.process.join(GRACE_SECONDS)
    code = member.process.exitcode
    how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    return TrialOutcome(failure=Failure(reason=FailureReason.WORKER_LOST, message=f"the worker process {how}"))


def _work(request: TrialRequest, execute: Execute | None, sent: Connection, stop: Event) -> None:
    """What each process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, too, and says what follows
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    assert request.gang is not None
    _take_gpu(request.gang.rank)
    if execute is None:
        from workers import execution

        execute = execution.execute
    with suppress(BrokenPipeError):
        for item in captured(execute(request, stop.is_set), request):
            sent.send(item)


def _end_with_the_parent() -> None:
    parent: Any = multiprocessing.parent_process()
    wait([parent.sentinel])
    os._exit(1)


def _take_gpu(rank: int) -> None:
    """Before CUDA is looked at, this process is left with one of the GPUs that it may use."""
    listed = os.environ.get(_GPUS)
    if listed is None:
        os.environ[_GPUS] = str(rank)
    elif listed:
        os.environ[_GPUS] = listed.split(",")[rank]
