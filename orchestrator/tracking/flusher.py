"""A background thread that carries writes to a slow or absent service, in order, without making the caller wait.

Metrics that wait together travel together. A write that the service refuses for good is remembered as a problem and
left out; one that could not be carried now is tried again, first at once and then ever more slowly, until `close`
runs out of patience. The queue is bounded: while it is full, new metrics are dropped and counted, writes of state
never are.
"""

import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from orchestrator.errors import ServiceError
from orchestrator.tracking.tracked_run import Point

MetricPoint = tuple[str, Point]
"""A metric's name and one of its points."""

_BATCH = 1000
"""Most metrics in one request; MLflow servers refuse more."""
_FIRST_DELAY, _LONGEST_DELAY = 0.25, 10.0
"""Seconds between tries."""


@dataclass(frozen=True)
class _Write:
    label: str
    """Of what, for the message when it fails: `trial 7`."""
    send: Callable[[], None]


@dataclass(frozen=True)
class _Metric:
    number: int
    point: MetricPoint


class Flusher:
    """Carries writes for one tracker; every method is called by one thread, the tracker's caller."""

    def __init__(
        self,
        send_metrics: Callable[[int, list[MetricPoint]], None],
        is_transient: Callable[[Exception], bool],
        reason: Callable[[Exception], str] = str,
        capacity: int = 100_000,
        patience: float = 20.0,
    ) -> None:
        self._send_metrics = send_metrics
        self._is_transient = is_transient
        self._reason = reason
        self._capacity = capacity
        self._patience = patience
        self._queue: deque[_Write | _Metric] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._moved = time.monotonic()
        self._dropped: Counter[str] = Counter()
        self._refused: dict[str, str] = {}
        self._failing = ""
        self._thread = threading.Thread(target=self._run, name="tracking-flusher", daemon=True)
        self._thread.start()

    def write(self, label: str, send: Callable[[], None]) -> None:
        """Queue a write of state."""
        with self._changed:
            self._queue.append(_Write(label, send))
            self._changed.notify_all()

    def metrics(self, number: int, points: list[MetricPoint]) -> None:
        """Queue a trial's metrics."""
        with self._changed:
            if len(self._queue) + len(points) > self._capacity:
                self._dropped[f"trial {number}"] += len(points)
                return
            self._queue.extend(_Metric(number, point) for point in points)
            self._changed.notify_all()

    def problem(self) -> str | None:
        """What could not be carried so far, in one line, or None."""
        with self._changed:
            parts = [f"{label}: {reason}" for label, reason in list(self._refused.items())[:3]]
            if self._dropped:
                parts.append(f"{self._dropped.total()} metric values of {_names(self._dropped)} were dropped")
            if self._queue and self._failing:
                parts.append(f"{_names(self._waiting())} still to be written: {self._failing}")
        return "; ".join(parts) or None

    def drain(self) -> None:
        """Wait until everything queued was carried; a ServiceError names what was not when nothing moves any more."""
        self._wait_while_moving()
        if self._queue:
            raise ServiceError(f"not yet tracked: {self.problem() or 'the service does not answer'}")

    def close(self) -> None:
        """Carry what is left, end the thread, and raise what could not be carried."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._wait_while_moving()
        if problem := self.problem():
            raise ServiceError(f"not everything was tracked: {problem}")

    def _wait_while_moving(self) -> None:
        with self._changed:
            self._moved = time.monotonic()
            while self._queue and not self._stalled():
                self._changed.wait(timeout=_FIRST_DELAY)

    def _stalled(self) -> bool:
        """Whether nothing was carried for as long as our patience lasts."""
        return time.monotonic() - self._moved > self._patience

    def _waiting(self) -> Counter[str]:
        return Counter(item.label if isinstance(item, _Write) else f"trial {item.number}" for item in self._queue)

    def _run(self) -> None:
        delay = 0.0
        while batch := self._next():
            if self._carried(batch):
                delay = 0.0
                continue
            delay = min(max(_FIRST_DELAY, 2 * delay), _LONGEST_DELAY)
            if not self._wait(delay):
                return

    def _wait(self, delay: float) -> bool:
        """Pause before the next try; False when there is to be none."""
        with self._changed:
            if not self._closing:
                self._changed.wait_for(lambda: self._closing, timeout=delay)
                return True
            self._changed.wait(timeout=_FIRST_DELAY)
            return not self._stalled()

    def _next(self) -> list[_Write | _Metric]:
        """What to carry next, left in the queue until it is carried: one write, or metrics; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            batch = list(itertools.islice(self._queue, _BATCH))
        if not batch or isinstance(batch[0], _Write):
            return batch[:1]
        return list(itertools.takewhile(lambda item: isinstance(item, _Metric), batch))

    def _carried(self, batch: list[_Write | _Metric]) -> bool:
        """Send a batch; False when it must be tried again."""
        for label, send in self._sends(batch):
            try:
                send()
            except Exception as error:
                if self._is_transient(error):
                    self._failing = self._reason(error)
                    return False
                with self._changed:
                    self._refused.setdefault(label, f"{type(error).__name__}: {self._reason(error)}")
        with self._changed:
            for _ in batch:
                self._queue.popleft()
            self._moved = time.monotonic()
            self._changed.notify_all()
        return True

    def _sends(self, batch: list[_Write | _Metric]) -> Iterator[tuple[str, Callable[[], None]]]:
        by_trial: dict[int, list[MetricPoint]] = {}
        for item in batch:
            if isinstance(item, _Write):
                yield item.label, item.send
            else:
                by_trial.setdefault(item.number, []).append(item.point)
        for number, points in by_trial.items():
            yield f"metrics of trial {number}", partial(self._send_metrics, number, points)


def _names(labels: Counter[str]) -> str:
    """The first few labels and how many more there are."""
    first = ", ".join(list(labels)[:5])
    return first if len(labels) <= 5 else f"{first} and {len(labels) - 5} more"
