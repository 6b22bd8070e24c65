"""Attempts on a simulated cluster: they report when their tokens are trained, and nodes fail under them.

A backend like any other to the driver. `poll` lets the clock go to the next thing that happens. What an attempt reports
is a function of its request and how many of its tokens are trained; it takes as long as its device needs for them.
Every report is a checkpoint, as on a real worker: an attempt that resumes from a lost one repeats what led there at
once and trains the rest.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from orchestrator.backends.backend import AttemptEnded, AttemptReported, Event
from orchestrator.backends.simulation.fleet import Node, NodeState, place_first
from orchestrator.backends.simulation.virtual_clock import VirtualClock
from workers.protocol import BenchmarkRequest, Failure, FailureReason, MetricReport, Request, TrialOutcome, TrialRequest

Curve = Callable[[Request, float], Mapping[str, float]]
"""Metrics of a request when a share of its tokens is trained; of a benchmark at 1."""


@dataclass
class _Attempt:
    request: Request
    state: NodeState
    points: deque[int]
    """Tokens at which it reports, still to come; the last are all of them."""
    began: float
    trained: int
    """Tokens that its device need not train any more, when it began."""
    steps: int = 0
    seconds: float = 0.0
    live: bool = True


@dataclass
class Utilisation:
    """Device seconds of a simulation."""

    usable: float = 0.0
    """Of devices on nodes that were up, as many as there were attempts left to run."""
    busy: float = 0.0
    wasted: float = 0.0
    """Trained tokens that were lost with a node."""

    @property
    def busy_share(self) -> float:
        """Of 1."""
        return self.busy / self.usable if self.usable else math.nan


@dataclass
class _Book:
    """Everything that will happen, by time and then by when it was decided."""

    entries: list[tuple[float, int, Callable[[], Event | None]]] = field(default_factory=list)
    order: "count[int]" = field(default_factory=count)

    def add(self, moment: float, happens: Callable[[], Event | None]) -> None:
        heapq.heappush(self.entries, (moment, next(self.order), happens))


class SimulatedBackend:
    """As many slots as devices on nodes that are up."""

    name = "simulated"

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        curve: Curve,
        clock: VirtualClock,
        seed: int = 0,
        place: Callable[[Sequence[NodeState]], NodeState] = place_first,
        benchmark_seconds: float = 20.0,
        work: float = math.inf,
    ) -> None:
        """`place` chooses among the nodes that are up and have a free device, in the order of `nodes`; `work`: how many
        attempts will end well, for `utilisation`.
        """
        self._curve, self._clock, self._place, self._benchmark_seconds = curve, clock, place, benchmark_seconds
        self._random = random.Random(seed)
        self._states = [NodeState(node, node.devices) for node in nodes]
        self.slots = sum(node.devices for node in nodes)
        self._waiting: deque[Request] = deque()
        self._running: dict[str, _Attempt] = {}
        self._checkpoints: dict[str, int] = {}
        """Trained tokens, by attempt folder."""
        self._book, self._work, self._measured_at = _Book(), work, clock()
        self.utilisation = Utilisation()
        for state in self._states:
            self._expect_trouble(state)

    def hardware(self) -> Mapping[str, Any]:
        """A made-up device."""
        return {"device": "simulated"}

    def submit(self, request: Request) -> None:
        """Start the attempt, or queue it while no device is free."""
        self._clock.charge()
        self._waiting.append(request)
        self._fill()

    def poll(self, timeout: float) -> list[Event]:
        """Let time pass until something is heard, at most `timeout` virtual seconds."""
        self._clock.charge()
        until = self._clock() + timeout
        while self._book.entries and (moment := self._book.entries[0][0]) <= max(until, self._clock()):
            self._clock.advance_to(moment)
            self._measure()
            event = heapq.heappop(self._book.entries)[2]()
            self._fill()
            if event is not None:
                return [event]
        if self._running or self._waiting:
            self._clock.advance_to(until)
        return []

    def queued_because(self) -> str | None:
        """Why requests wait."""
        if not self._waiting:
            return None
        return f"{len(self._waiting)} waiting for one of {self.slots} devices"

    def stop(self, attempt_id: str) -> None:
        """Forget the attempt; its device is free at once."""
        self._waiting = deque(request for request in self._waiting if request.attempt_id != attempt_id)
        if attempt_id in self._running:
            self._leave(self._running[attempt_id])
            self._fill()

    def rest(self) -> None:
        """Devices cost nothing here."""

    def close(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self._running.clear()
        self._book.entries.clear()

    def _fill(self) -> None:
        while self._waiting:
            free = [state for state in self._states if state.up and state.free]
            if not free:
                return
            self._start(self._waiting.popleft(), self._place(free))

    def _start(self, request: Request, state: NodeState) -> None:
        self._measure()
        state.free -= 1
        points, trained = deque(_points(request)), 0
        if isinstance(request, TrialRequest):
            trained = max((self._checkpoints.get(folder, 0) for folder in request.resume_from), default=0)
        attempt = _Attempt(request, state, points, self._clock(), trained)
        self._running[request.attempt_id] = attempt
        self._expect_next(attempt)

    def _expect_next(self, attempt: _Attempt) -> None:
        if isinstance(attempt.request, BenchmarkRequest):
            moment = attempt.began + self._benchmark_seconds
        else:
            left = max(0, attempt.points[0] - attempt.trained)
            moment = attempt.began + left / attempt.state.node.tokens_per_second
        self._book.add(moment, lambda: self._reached(attempt))

    def _reached(self, attempt: _Attempt) -> Event | None:
        """The next point of an attempt, or its end."""
        if not attempt.live:
            return None
        request, seconds = attempt.request, self._clock() - attempt.began
        if isinstance(request, BenchmarkRequest) or not attempt.points:
            self._leave(attempt)
            attempt.state.ended_well += 1
            self._work -= 1
            return AttemptEnded(request.attempt_id, TrialOutcome(metrics=self._curve(request, 1.0), seconds=seconds))
        tokens = attempt.points.popleft()
        attempt.steps += 1
        self._checkpoints[request.folder] = max(tokens, self._checkpoints.get(request.folder, 0))
        if attempt.points:
            self._expect_next(attempt)
        else:
            self._book.add(self._clock(), lambda: self._reached(attempt))
        metrics = self._curve(request, tokens / request.train.tokens)
        report = MetricReport(step=attempt.steps, tokens=tokens, metrics=metrics, seconds=seconds)
        return AttemptReported(request.attempt_id, report)

    def _leave(self, attempt: _Attempt) -> None:
        self._measure()
        attempt.live = False
        del self._running[attempt.request.attempt_id]
        attempt.state.free += 1

    def _expect_trouble(self, state: NodeState) -> None:
        node, now = state.node, self._clock()
        for mean, preempted in ((node.seconds_between_failures, False), (node.seconds_between_preemptions, True)):
            if mean is not None:
                moment = now + self._random.expovariate(1 / mean)
                self._book.add(moment, partial(self._goes_away, state, state.lives, preempted))

    def _goes_away(self, state: NodeState, life: int, preempted: bool) -> Event | None:
        if not state.up or state.lives != life:
            return None
        self._measure()
        state.up = False
        self.slots -= state.node.devices
        for attempt in [attempt for attempt in self._running.values() if attempt.state is state]:
            self._lose(attempt, preempted)
        self._book.add(self._clock() + state.node.repair_seconds, lambda: self._comes_back(state))
        return None

    def _lose(self, attempt: _Attempt, preempted: bool) -> None:
        self._leave(attempt)
        trained = attempt.trained + int((self._clock() - attempt.began) * attempt.state.node.tokens_per_second)
        request, node = attempt.request, attempt.state.node
        if isinstance(request, TrialRequest):
            if preempted:
                self._checkpoints[request.folder] = min(trained, request.train.tokens)
            kept = max(attempt.trained, self._checkpoints.get(request.folder, 0))
            self.utilisation.wasted += max(0, trained - kept) / node.tokens_per_second
        attempt.state.lost += not preempted
        what = f"{node.name} was preempted" if preempted else f"{node.name} died"
        failure = Failure(reason=FailureReason.WORKER_LOST, message=what)
        ended = AttemptEnded(request.attempt_id, TrialOutcome(failure=failure, seconds=self._clock() - attempt.began))
        self._book.add(self._clock(), lambda: ended)

    def _comes_back(self, state: NodeState) -> Event | None:
        self._measure()
        state.up, state.lives = True, state.lives + 1
        self.slots += state.node.devices
        self._expect_trouble(state)
        return None

    def _measure(self) -> None:
        """Devices and attempts were as they are from the last call until now."""
        now = self._clock()
        passed, self._measured_at = now - self._measured_at, now
        self.utilisation.usable += passed * min(self.slots, self._work)
        self.utilisation.busy += passed * len(self._running)


def _points(request: Request) -> Sequence[int]:
    """Tokens at which an attempt reports, the last at the end."""
    if isinstance(request, BenchmarkRequest):
        return ()
    total, evaluations = request.train.tokens, request.train.evaluations
    regular = {math.ceil(total * index / evaluations) for index in range(1, evaluations + 1)}
    return sorted(regular | {tokens for tokens in request.evaluate_at if tokens < total})
