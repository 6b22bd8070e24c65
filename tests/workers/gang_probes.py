"""Workers that die, fail, or go on for ever; importable, so that processes can run them."""

import os
import signal
from collections.abc import Iterator

from workers.execution import execute
from workers.protocol import MetricReport, Request, ShouldStop, TrialOutcome, TrialRequest

Stream = Iterator[MetricReport | TrialOutcome]


def _rank(request: Request) -> int:
    assert isinstance(request, TrialRequest)
    assert request.gang is not None
    return request.gang.rank


def _killed_before(request: Request, should_stop: ShouldStop, rank: int, steps: int) -> Stream:
    left = [steps]

    def stop_or_die() -> bool:
        left[0] -= 1
        if left[0] < 0 and _rank(request) == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        return should_stop()

    return execute(request, stop_or_die)


def first_dies(request: Request, should_stop: ShouldStop) -> Stream:
    """Rank 0 is killed after six steps."""
    return _killed_before(request, should_stop, 0, 6)


def last_dies(request: Request, should_stop: ShouldStop) -> Stream:
    """Rank 1 is killed after six steps."""
    return _killed_before(request, should_stop, 1, 6)


def last_raises(request: Request, should_stop: ShouldStop) -> Stream:
    """Rank 1 raises before the seventh step, while rank 0 waits for it."""
    asked = [0]

    def stop_or_raise() -> bool:
        asked[0] += 1
        if asked[0] == 7 and _rank(request) == 1:
            raise ValueError("rank 1 cannot go on")
        return should_stop()

    return execute(request, stop_or_raise)
