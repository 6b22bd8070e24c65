"""Attempts in this process, one at a time, advanced report by report inside `poll`.

No threads, no clock: the same requests give the same events in the same order, which makes it the backend for
debugging, for tests and for a study that must be repeatable bit for bit. An attempt of several workers has them as
processes of this machine, which end with it; what its machines should have is Ray's business and not looked at here.
"""

import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orchestrator.backends.backend import AttemptEnded, AttemptReported, Event
from workers.actor import Worker
from workers.protocol import (
    Execute,
    Failure,
    FailureReason,
    MetricReport,
    Request,
    TrialOutcome,
    TrialRequest,
    never_stop,
)


class LocalBackend:
    """One slot: this process."""

    name = "local"
    slots = 1

    def __init__(self, execute: Execute | None = None, hardware: Callable[[], dict[str, Any]] | None = None) -> None:
        self._worker, self._execute = Worker(execute, hardware), execute
        self._waiting: deque[Request] = deque()
        self._running: tuple[str, Iterator[MetricReport | TrialOutcome]] | None = None

    def hardware(self) -> Mapping[str, Any]:
        """What this process runs on."""
        return self._worker.hardware()

    def submit(self, request: Request) -> None:
        """Queue the attempt."""
        self._waiting.append(request)

    def poll(self, timeout: float) -> list[Event]:
        """Advance the running attempt by one report; with nothing to run there is nothing to wait for."""
        del timeout
        if self._running is None and self._waiting:
            request = self._waiting.popleft()
            self._running = (request.attempt_id, self._started(request))
        if self._running is None:
            return []
        attempt_id, stream = self._running
        item = _advance(stream)
        if isinstance(item, MetricReport):
            return [AttemptReported(attempt_id, item)]
        self._running = None
        return [AttemptEnded(attempt_id, item)]

    def queued_because(self) -> str | None:
        """The attempt that a waiting request waits for."""
        if not self._waiting or self._running is None:
            return None
        return f"{len(self._waiting)} waiting for {self._running[0]}: attempts run one at a time"

    def stop(self, attempt_id: str) -> None:
        """Forget the attempt; a running one is closed where it stands."""
        self._waiting = deque(request for request in self._waiting if request.attempt_id != attempt_id)
        if self._running is not None and self._running[0] == attempt_id:
            self._close_running()

    def rest(self) -> None:
        """This process holds no device between attempts."""

    def close(self) -> None:
        """Forget every attempt."""
        self._waiting.clear()
        self._close_running()

    def _started(self, request: Request) -> Iterator[MetricReport | TrialOutcome]:
        if isinstance(request, TrialRequest) and request.gang is not None:
            from workers.parallel.processes import run_together

            return run_together(request, self._execute, never_stop)
        return iter(self._worker.run(request))

    def _close_running(self) -> None:
        if self._running is None:
            return
        stream = self._running[1]
        self._running = None
        close = getattr(stream, "close", None)
        if close is not None:
            close()


def _advance(stream: Iterator[MetricReport | TrialOutcome]) -> MetricReport | TrialOutcome:
    """The next item; a worker that raises or ends without an outcome has failed."""
    try:
        return next(stream)
    except StopIteration:
        message = "the worker ended without an outcome"
        return TrialOutcome(failure=Failure(reason=FailureReason.EXCEPTION, message=message))
    except Exception as error:
        return TrialOutcome(
            failure=Failure(
                reason=FailureReason.EXCEPTION,
                message=f"{type(error).__name__}: {error}",
                traceback=traceback.format_exc(),
            )
        )
