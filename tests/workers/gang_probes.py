"""Workers that die, fail, or go on for ever; importable, so that processes and actors can run them."""

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from workers.config import TrainConfig
from workers.execution import execute
from workers.models import LoopedTransformer
from workers.parallel import Sharded, joined
from workers.protocol import Ask, Failure, FailureReason, MetricReport, Request, ShouldStop, TrialOutcome, TrialRequest
from workers.training.stepper import make_optimizer, summed_loss

Stream = Iterator[MetricReport | TrialOutcome]


def _rank(request: Request) -> int:
    assert isinstance(request, TrialRequest)
    assert request.gang is not None
    return request.gang.rank


def _killed_before(request: Request, should_stop: ShouldStop, rank: int, steps: int) -> Stream:
    """A minute passes before every step, so that a state is saved there, between two reports, too."""
    left, now = [steps], [0.0]

    def stop_or_die() -> bool:
        now[0] += 61.0
        left[0] -= 1
        if left[0] < 0 and _rank(request) == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        return should_stop()

    return execute(request, stop_or_die, clock=lambda: now[0])


def first_dies(request: Request, should_stop: ShouldStop) -> Stream:
    """Rank 0 is killed after four steps."""
    return _killed_before(request, should_stop, 0, 4)


def last_dies(request: Request, should_stop: ShouldStop) -> Stream:
    """Rank 1 is killed after seven steps."""
    return _killed_before(request, should_stop, 1, 7)


def apart(request: Request, should_stop: ShouldStop) -> Stream:
    """Every rank is on a machine of its own, which has nothing of the others' and of earlier attempts'."""
    return execute(_on_its_own_machine(request), should_stop)


def apart_and_last_dies(request: Request, should_stop: ShouldStop) -> Stream:
    """The same, and rank 1 is killed after seven steps."""
    return _killed_before(_on_its_own_machine(request), should_stop, 1, 7)


def _on_its_own_machine(request: Request) -> Request:
    assert isinstance(request, TrialRequest)
    machine = f"of-{Path(request.folder).name}-rank-{_rank(request)}"

    def moved(folder: str) -> str:
        return str(Path(folder).parent / machine / Path(folder).name)

    return replace(request, folder=moved(request.folder), resume_from=tuple(map(moved, request.resume_from)))


def last_leaves(request: Request, should_stop: ShouldStop) -> Stream:
    """Rank 1 is asked to leave before the seventh step."""
    asked = [0]

    def stop_or_leave() -> int:
        asked[0] += 1
        return Ask.LEAVE if asked[0] == 7 and _rank(request) == 1 else should_stop()

    return execute(request, stop_or_leave)


def last_raises(request: Request, should_stop: ShouldStop) -> Stream:
    """Rank 1 raises before the seventh step, while rank 0 waits for it."""
    asked = [0]

    def stop_or_raise() -> bool:
        asked[0] += 1
        if asked[0] == 7 and _rank(request) == 1:
            raise ValueError("rank 1 cannot go on")
        return should_stop()

    return execute(request, stop_or_raise)


def weighed(request: Request, _: ShouldStop) -> Stream:
    """After a step of a sharded model: which share of all numbers this worker holds."""
    assert isinstance(request, TrialRequest)
    with joined(request.gang, request.folder) as ranks:
        spread = Sharded(LoopedTransformer(request.model), ranks, torch.device("cpu"))
        optimizer = make_optimizer(spread.model, TrainConfig())
        spread.backward(spread.loss(summed_loss, *torch.ones(2, 4, 8, dtype=torch.int64)))
        parameters = list(spread.model.parameters())
        gradients = [parameter.grad for parameter in parameters]
        optimizer.step()
        moments = [optimizer.state[parameter]["exp_avg"] for parameter in parameters]
        held = {"weights": parameters, "gradients": gradients, "optimizer": moments}
        yield TrialOutcome(metrics={name: _share(tensors) for name, tensors in held.items()})


def _share(tensors: list[Any]) -> float:
    return sum(each.to_local().numel() for each in tensors) / sum(each.numel() for each in tensors)


def _there(request: Request) -> Path:
    """Where a rank leaves its process id as soon as it runs, and a trace when it has stopped."""
    assert isinstance(request, TrialRequest)
    return Path(request.folder) / f"rank-{_rank(request)}"


def _report(request: Request) -> MetricReport:
    _there(request).with_suffix(".pid").write_text(str(os.getpid()))
    return MetricReport(step=1, tokens=1, metrics={"rank": float(_rank(request))}, seconds=0.0)


def endless(request: Request, should_stop: ShouldStop) -> Stream:
    """Every rank goes on until it is stopped."""
    try:
        while not should_stop():
            yield _report(request)
    finally:
        _there(request).with_suffix(".stopped").touch()


def waiting(request: Request, _: ShouldStop) -> Stream:
    """Every rank reports once and waits for ever."""
    yield _report(request)
    threading.Event().wait()


def told(request: Request, _: ShouldStop) -> Stream:
    """Rank 0 has only lost the others; rank 1 says why, after that."""
    yield _report(request)
    if _rank(request) == 1:
        while not _there(request).with_name("rank-0.lost").exists():
            pass
        yield TrialOutcome(failure=Failure(reason=FailureReason.GPU_OOM, message="too much"))
    _there(request).with_suffix(".lost").touch()
    yield TrialOutcome(metrics={"known": 1.0}, failure=Failure(reason=FailureReason.PEER_LOST, message="gone"))
