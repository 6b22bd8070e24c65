"""Attempts in warm Ray actors, on this machine or on the cluster at `address`.

Actors are made when first needed, or by `warm`, and reused for the next attempt. One is replaced after any failure,
when it did not stop within the grace, when its memory has grown by more than a limit since its first attempt, and after
a number of attempts. An actor that gives no sign of life for a lease is given up: its attempt has ended for good,
whatever it may still do or send. Retrying is the runner's decision.

Where actors start is this backend's: not on nodes that are being taken away, that keep failing or that do not answer
(`ray_nodes`). Attempts on a node that is being taken away are asked to save a state and leave. What finds no place in
time ends: an attempt that waits for its actors has failed, and when no node at all has room the driver gives up.

Training and decode benchmarks may need different machines. Then each kind has actors of its own, and one that waits for
a place goes before attempts of the other kind, for which idle actors are kept no longer.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

from orchestrator.backends import ray_cluster
from orchestrator.backends.backend import AttemptEnded, AttemptReported, Event
from orchestrator.backends.placement import Placement
from orchestrator.backends.ray_death import describe_death, failed, last_line
from orchestrator.backends.ray_gang import RayGang
from orchestrator.backends.ray_inquest import Inquest
from orchestrator.backends.ray_nodes import RayNodes
from orchestrator.backends.ray_worker import Death, RayWorker, make_actor
from orchestrator.errors import ServiceError
from workers.protocol import Execute, FailureReason, MetricReport, Request, TrialOutcome, TrialRequest

_HARDWARE_SECONDS = 300.0
"""A first actor may have to wait for another user's job to end."""
_CLUSTER_SECONDS = 1.0
"""How often the cluster's nodes are counted."""


@dataclass(frozen=True, kw_only=True)
class Recycling:
    """When a healthy actor is replaced nevertheless."""

    grown_bytes: int = 1024**3
    """Its memory, of the host or of the GPU, has grown by more than this since its first attempt."""
    attempts: int = 200
    """It has run so many."""


class RayBackend:
    """As many slots as the cluster has room for attempts of the given size; nodes that come and go change them."""

    name = "ray"

    def __init__(
        self,
        *,
        train: Placement | None = None,
        benchmark: Placement | None = None,
        address: str | None = None,
        execute: Execute | None = None,
        hardware: Callable[[], dict[str, Any]] | None = None,
        lease: float = 60.0,
        grace: float = 5.0,
        recycling: Recycling | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`train` and `benchmark` are what an attempt of each kind needs; by default one CPU, and what training needs.

        `lease`: after how many seconds of silence an actor is given up; `grace`: how many it has to stop in."""
        self._owned = ray_cluster.connect(address)
        self._alone = self._owned and address is None
        self._train = _decided(train or Placement())
        self._benchmark = replace(self._train, workers=1) if benchmark is None else _decided(benchmark)
        try:
            self.slots = ray_cluster.require_room(self._train)
            ray_cluster.require_room(self._benchmark, "benchmark")
        except Exception:
            self._disconnect()
            raise
        self._arguments = (execute, hardware)
        self._lease, self._grace, self._clock = lease, grace, clock
        self._recycling = recycling or Recycling()
        self._waiting: deque[Request] = deque()
        self._workers: list[RayWorker | RayGang] = []
        self._inquests: list[Inquest] = []
        self._nodes = RayNodes()
        self._roomless = 0.0
        """For how many seconds something has waited while no node had room."""
        self._watched_at = self._counted_at = clock()
        self._free = ""
        """What was free when somebody last waited for a place, in words."""

    def hardware(self) -> Mapping[str, Any]:
        """What a benchmark's worker runs on, asked of one; waits at most `_HARDWARE_SECONDS` for it."""
        for other in [each for each in self._workers if each.placement != self._benchmark and not _busy(each)]:
            self._give_up(other)
        idle = [worker for worker in self._workers if worker.idle and worker.placement == self._benchmark]
        worker = idle[0] if idle else self._make_worker(self._benchmark)
        assert isinstance(worker, RayWorker)
        try:
            return worker.hardware(_HARDWARE_SECONDS)
        except RayError as error:
            self._give_up(worker)
            raise ServiceError(f"a worker cannot say what it runs on: {last_line(error)}; see `plt doctor`") from error

    def warm(self, most: int) -> None:
        """Start up to so many actors before there is work for them, without waiting for any."""
        for _ in range(len(self._workers), min(most, self.slots)):
            self._make_worker(self._train)

    def submit(self, request: Request) -> None:
        """Start the attempt, or queue it while every slot is taken."""
        self._waiting.append(request)
        self._fill()

    def poll(self, timeout: float) -> list[Event]:
        """Events of all actors, waiting at most `timeout` seconds for the first."""
        until = self._clock() + timeout
        while True:
            self._tend()
            wait = min(self._lease / 6, _CLUSTER_SECONDS, max(0.0, until - self._clock()))
            events = [*self._collect(wait), *self._expire()]
            self._fill()
            nothing_to_do = not self._waiting and not self._inquests and not any(map(_busy, self._workers))
            if events or nothing_to_do or self._clock() >= until:
                return events

    def queued_because(self) -> str | None:
        """What waiting requests, or actors that have not started, wait for."""
        avoided = self._nodes.avoided()
        stays_away = f"; avoided: {avoided}" if avoided else ""
        if self.slots == 0:
            nodes = ray_cluster.what_there_is()
            return self._waits(f"a node with {self._train.wants()} (nodes: {nodes}{stays_away})")
        starting = [worker for worker in self._workers if _busy(worker) and not worker.answered]
        if starting:
            wants = " or ".join(dict.fromkeys(worker.placement.wants() for worker in starting))
            free = f"; free: {self._free}" if self._free else ""
            return f"{len(starting)} waiting for {wants} to start{free}{stays_away}"
        return self._waits(f"one of {self.slots} slots{stays_away}")

    def stop(self, attempt_id: str) -> None:
        """Forget the attempt. Its actor is asked to end it and stays warm; after the grace it is killed."""
        self._waiting = deque(request for request in self._waiting if request.attempt_id != attempt_id)
        self._inquests = [inquest for inquest in self._inquests if inquest.attempt_id != attempt_id]
        for worker in [worker for worker in self._workers if worker.attempt_id == attempt_id]:
            worker.stop(by=self._clock() + self._grace)
        self._fill()

    def rest(self) -> None:
        """Kill the actors that run nothing, or only what was stopped."""
        for worker in [worker for worker in self._workers if not _busy(worker) or worker.stop_by is not None]:
            self._give_up(worker)

    def close(self) -> None:
        """Kill every actor, and the cluster if this backend started it."""
        self._waiting.clear()
        self._inquests.clear()
        for worker in list(self._workers):
            self._give_up(worker)
        self._disconnect()

    def _disconnect(self) -> None:
        if self._owned:
            ray_cluster.disconnect()

    def _make_worker(self, placement: Placement) -> RayWorker | RayGang:
        worker: RayWorker | RayGang
        excluded = self._nodes.excluded(placement)
        if placement.workers > 1:
            worker = RayGang(placement, self._arguments, self._lease, self._grace, excluded)
        else:
            worker = RayWorker(make_actor(placement, self._arguments, excluded=excluded), placement, self._lease)
        self._workers.append(worker)
        return worker

    def _give_up(self, worker: RayWorker | RayGang) -> None:
        """Kill it, and never read anything of it again."""
        self._workers.remove(worker)
        worker.kill()

    def _fill(self) -> None:
        """Start what waits on idle actors of its kind, and on new ones while there is room."""
        while self._waiting and sum(map(_busy, self._workers)) < self.slots:
            placement = self._train if isinstance(self._waiting[0], TrialRequest) else self._benchmark
            if any(self._waits_for_place(each) and each.placement != placement for each in self._workers):
                return  # it goes first
            idle = [worker for worker in self._workers if worker.idle and worker.placement == placement]
            if not idle and len(self._workers) >= self.slots and not self._let_go_of_one():
                return  # one is being looked at after its last attempt
            worker = max(idle, key=lambda one: one.answered) if idle else self._make_worker(placement)
            worker.start(self._waiting.popleft())

    def _waits_for_place(self, worker: RayWorker | RayGang) -> bool:
        return _busy(worker) and not worker.answered and worker.starting >= self._grace

    def _let_go_of_one(self) -> bool:
        """Make place among the slots for an actor of another kind, if one is idle."""
        idle = [worker for worker in self._workers if worker.idle]
        if idle:
            self._give_up(idle[0])
        return bool(idle)

    def _tend(self) -> None:
        """Ask for signs of life, and count the nodes now and then."""
        now = self._clock()
        passed, self._watched_at = now - self._watched_at, now
        for worker in self._workers:
            worker.watch(passed)
        self._make_place()
        if now - self._counted_at >= _CLUSTER_SECONDS:
            self._roomless = self._roomless + now - self._counted_at if self._waiting and self.slots == 0 else 0.0
            self._counted_at = now
            self._nodes.look(now)
            self.slots = self._nodes.slots(self._train)
            self._leave_nodes()
            self._free = ray_cluster.what_is_free() if any(map(self._waits_for_place, self._workers)) else ""
            if self._alone and self.slots == 0:
                raise ServiceError("the Ray cluster that this process started has died; start the study again")
            if self._roomless >= self._train.timeout:
                raise ServiceError(self._no_room())
            self._fill()

    def _leave_nodes(self) -> None:
        """Attempts leave nodes that are being taken away, idle actors every node that is to be avoided."""
        for worker in list(self._workers):
            if worker.idle and any(self._nodes.shuns(place, worker.placement) for place in worker.places):
                self._give_up(worker)
            elif not self._nodes.draining.isdisjoint(worker.places):
                worker.leave()

    def _make_place(self) -> None:
        """Idle actors that hold what one with work waits for, as after a node was lost, let go of it."""
        starting = [worker for worker in self._workers if self._waits_for_place(worker)]
        idle = [worker for worker in self._workers if worker.idle]
        alike = all(worker.placement == self._train for worker in starting)
        if alike and self._waiting and sum(map(_busy, self._workers)) < self.slots:
            return  # they have work themselves
        for worker in idle[: len(starting)]:
            self._give_up(worker)

    def _collect(self, wait: float) -> list[Event]:
        """What is ready after waiting for anything at most `wait` seconds."""
        watched = [each for worker in self._workers for each in worker.waits_for()]
        watched += [each for inquest in self._inquests for each in inquest.waits_for()]
        if not watched:
            time.sleep(wait if self._waiting else 0.0)
            return []
        ready, _ = ray.wait(watched, num_returns=1, timeout=wait)
        if ready:
            ready, _ = ray.wait(watched, num_returns=len(watched), timeout=0)
        events = [self._read(worker, set(ready)) for worker in list(self._workers)]
        events += [self._conclude(inquest, set(ready)) for inquest in list(self._inquests)]
        return [event for event in events if event is not None]

    def _read(self, worker: RayWorker | RayGang, ready: set[Any]) -> Event | None:
        """The next event of an actor; whatever its stream or its silence says of it is acted on."""
        attempt_id, forgotten = worker.attempt_id, worker.stop_by is not None
        try:
            item = worker.next_item(ready)
            outcome = self._hear(worker, ready) if item is None else item
        except StopIteration:
            outcome = failed(FailureReason.EXCEPTION, "the worker ended without an outcome")
            if forgotten:
                worker.end()
                return None
        except RayTaskError as error:
            outcome = describe_death(error, node="", node_died=False, oom_killed=False)
        except Death as death:
            return self._bury(worker, death.error)
        if outcome is None or attempt_id is None:
            return None
        if isinstance(outcome, MetricReport):
            return None if forgotten else AttemptReported(attempt_id, outcome)
        places = worker.locate()
        if outcome.failure is not None:
            self._give_up(worker)
        elif not forgotten:
            worker.end()
        return None if forgotten else self._ended(attempt_id, places, outcome)

    def _ended(self, attempt_id: str, places: Sequence[str], outcome: TrialOutcome) -> AttemptEnded:
        trial = attempt_id.partition("-attempt-")[0]
        return AttemptEnded(attempt_id, self._nodes.ended(places, trial, outcome))

    def _hear(self, worker: RayWorker | RayGang, ready: set[Any]) -> TrialOutcome | None:
        """Take in a sign of life; the outcome of an attempt that cannot be followed any more."""
        if not worker.hear(ready):
            return None
        if worker.cut_off is not None:
            return failed(FailureReason.WORKER_LOST, f"the connection to the worker broke: {worker.cut_off}")
        worn = worker.grown_bytes > self._recycling.grown_bytes or worker.attempts >= self._recycling.attempts
        if worker.idle and worn:
            self._give_up(worker)
        return None

    def _bury(self, worker: RayWorker | RayGang, error: RayError) -> Event | None:
        """An actor is dead, or cannot be reached: the latter is asked again until its lease is over."""
        if isinstance(worker, RayWorker):
            worker.locate()
        unreachable = isinstance(error, ActorUnavailableError) and worker.attempt_id is not None
        if unreachable and isinstance(worker, RayWorker):
            worker.cut(error)
            return None
        attempt_id, forgotten = worker.attempt_id, worker.stop_by is not None
        self._give_up(worker)
        if attempt_id is None or forgotten:
            return None
        inquest = Inquest(attempt_id, error, worker.node_id, worker.oom_kills, self._clock(), worker.who)
        self._inquests.append(inquest)
        return self._conclude(inquest, set())

    def _conclude(self, inquest: Inquest, ready: set[Any]) -> Event | None:
        outcome = inquest.outcome(ready, self._clock())
        if outcome is None:
            return None
        self._inquests.remove(inquest)
        return self._ended(inquest.attempt_id, [inquest.node_id], self._nodes.died(inquest.node_id, outcome))

    def _expire(self) -> list[Event]:
        """Give up actors that were silent for a lease, did not stop within the grace, or found no place in time."""
        events: list[Event] = []
        for worker in list(self._workers):
            stopping = worker.stop_by is not None
            late = worker.stop_by is not None and self._clock() >= worker.stop_by
            if not (worker.lease_is_over or late or worker.overdue):
                continue
            attempt_id = worker.attempt_id
            outcome = self._no_place(worker) if worker.overdue else self._silent()
            places = worker.silent_places
            self._give_up(worker)
            for place in places:
                self._nodes.silent(place)
            if attempt_id is not None and not stopping:
                events.append(self._ended(attempt_id, places, outcome))
        return events

    def _silent(self) -> TrialOutcome:
        message = f"no sign of life for {self._lease:g} s (process frozen or machine gone)"
        return failed(FailureReason.WORKER_LOST, message)

    def _no_room(self) -> str:
        timeout, wants = self._train.timeout, self._train.wants()
        return (
            f"no node had {wants} for {timeout:g} s, see resources.placement_timeout "
            f"(nodes: {ray_cluster.what_there_is()}); `plt resume` goes on when there is one"
        )

    def _no_place(self, worker: RayWorker | RayGang) -> TrialOutcome:
        placement = worker.placement
        message = f"no place for {placement.wants()} within {placement.timeout:g} s, see resources.placement_timeout"
        return failed(FailureReason.TIMEOUT, f"{message}; free: {ray_cluster.what_is_free()}")

    def _waits(self, what: str) -> str | None:
        return f"{len(self._waiting)} waiting for {what}" if self._waiting else None


def _busy(worker: RayWorker | RayGang) -> bool:
    return worker.attempt_id is not None


def _decided(placement: Placement) -> Placement:
    """One GPU where the cluster has any, if nothing is said of GPUs."""
    if placement.gpus is not None:
        return placement
    return replace(placement, gpus=1.0 if ray_cluster.has_gpus() else 0.0)
