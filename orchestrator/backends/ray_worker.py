"""One warm Ray actor: the attempt it runs, its signs of life, and the memory it holds.

It is asked for a sign of life every third of a lease, beside whatever it runs. Silence counts only while it is being
watched: a driver that was busy elsewhere, or suspended, adds at most a third of a lease. Before its first answer an
actor is starting or waits for the cluster, and no lease runs.
"""

import contextlib
from collections.abc import Collection, Iterable
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError, RayTaskError

from orchestrator.backends.placement import Placement
from orchestrator.backends.ray_cluster import elsewhere, node_of
from workers.actor import Worker
from workers.protocol import MetricReport, Request, TrialOutcome

_CONTROL = {"control": 2}
"""Threads for what is answered while `run` works."""

Item = MetricReport | TrialOutcome | None


class Death(Exception):  # noqa: N818 - carries an error
    """The actor, or the way to it, is gone; `error` is what Ray said."""

    def __init__(self, error: RayError) -> None:
        super().__init__(str(error))
        self.error = error


class RayWorker:
    """A handle on one actor. Nothing here waits but `hardware`."""

    who = ""
    """Which of several workers died, in words: there is only this one."""

    def __init__(self, handle: Any, placement: Placement, lease: float) -> None:
        self._handle, self._lease, self.placement = handle, lease, placement
        self.attempt_id: str | None = None
        """What it runs."""
        self.stop_by: float | None = None
        """When it is killed if the attempt that is to stop has not ended."""
        self.cut_off: RayError | None = None
        """Set once its attempt cannot be followed any more although the actor may live."""
        self.answered = False
        """Whether it has ever given a sign of life."""
        self.starting = 0.0
        """For how many seconds of being watched it has had work and not answered."""
        self.checked = True
        """Whether its memory has been looked at since its last attempt."""
        self.attempts = 0
        self.node_id = ""
        self.oom_kills: int | None = None
        """Of its node, at its last sign of life."""
        self.grown_bytes = 0
        """By how much its memory has grown since its first attempt."""
        self._leaving = False
        self._stream: Any = None
        self._item: Any = None
        self._ping: Any = None
        self._since_ping = lease
        self._silence = 0.0
        self._first_memory: tuple[int, int] | None = None

    def start(self, request: Request) -> None:
        """Have it run a request."""
        self.attempt_id, self.stop_by, self.checked = request.attempt_id, None, False
        self._leaving = False
        self.attempts += 1
        self._stream = self._handle.run.options(num_returns="streaming").remote(request)

    def stop(self, by: float) -> None:
        """Ask it to end its attempt; whoever holds this kills it after `by`."""
        if self.stop_by is None:
            self.stop_by = by
            self._handle.stop.options(concurrency_group="control").remote(self.attempt_id)

    def leave(self) -> None:
        """Ask it to save a state and end its attempt: its machine is being taken away. Asked once per attempt."""
        if self.attempt_id is not None and not self._leaving:
            self._leaving = True
            self._handle.leave.options(concurrency_group="control").remote(self.attempt_id)

    def cut(self, error: RayError) -> None:
        """Its attempt cannot be followed any more; whether it lives is asked at once."""
        self.cut_off, self.answered, self._since_ping = error, True, self._lease

    def end(self) -> None:
        """Its attempt is over; its memory is looked at before the next."""
        self.attempt_id = self.stop_by = self._stream = self._item = None
        self._since_ping = self._lease

    def kill(self) -> None:
        """End the process; nothing of it is read again. A frozen one ends some seconds after this."""
        self.end()
        self._ping = None
        with contextlib.suppress(RayError):
            ray.kill(self._handle)

    @property
    def idle(self) -> bool:
        """Whether it can take a request now."""
        return self.attempt_id is None and self.checked

    def watch(self, seconds: float) -> None:
        """So much time has passed since the last call: ask for a sign of life if one is due."""
        third = self._lease / 3
        self._since_ping += seconds
        if self.answered:
            self._silence += min(seconds, third)
        elif self.attempt_id is not None:
            self.starting += seconds
        if self._ping is None and self._since_ping >= third:
            self._since_ping = 0.0
            self._ping = self._ask_sign_of_life()

    @property
    def lease_is_over(self) -> bool:
        """Whether it has been silent for too long."""
        return self._silence >= self._lease

    @property
    def overdue(self) -> bool:
        """Whether it has waited for its place for too long."""
        return not self.answered and self.starting >= self.placement.timeout

    @property
    def places(self) -> list[str]:
        """The node it runs on, by id, once it is known."""
        return [self.node_id] if self.node_id else []

    def locate(self) -> list[str]:
        """The same, asked of the cluster where it ended before it could say."""
        self.node_id = self.node_id or node_of(self._handle)
        return self.places

    @property
    def silent_places(self) -> list[str]:
        """The same, if it has been silent for too long."""
        return self.places if self.lease_is_over else []

    def waits_for(self) -> Iterable[Any]:
        """What `ray.wait` should look at."""
        return [each for each in (self._item or self._stream, self._ping) if each is not None]

    def next_item(self, ready: set[Any]) -> Item:
        """The next report or the outcome if one is ready, else None.

        Raises `StopIteration` at the end of the attempt, `RayTaskError` if it raised, `Death` if it cannot go on.
        """
        if self._stream is None or (self._item or self._stream) not in ready:
            return None
        try:
            self._item = self._item or next(self._stream)
            item: Item = ray.get(self._item, timeout=0)
        except GetTimeoutError:
            return None  # it is still on its way from another node
        except RayTaskError:
            raise
        except RayError as error:
            self._stream = self._item = None
            raise Death(error) from error
        self._item, self._silence, self.answered = None, 0.0, True
        return item

    def hear(self, ready: set[Any]) -> bool:
        """Take in a sign of life that is ready, and say whether there was one.

        Raises `Death` if the actor is dead, unless its stream is still there to be read to its end, which says so too.
        """
        if self._ping is None or self._ping not in ready:
            return False
        ping, self._ping = self._ping, None
        try:
            self._take_in(ray.get(ping, timeout=0))
        except GetTimeoutError:
            self._ping = ping
            return False
        except ActorUnavailableError:
            return False  # perhaps the network: asked again, until the lease is over
        except RayError as error:
            if self._stream is None:
                raise Death(error) from error
            return False
        return True

    def _ask_sign_of_life(self) -> Any:
        """A lambda travels whole, so that a machine that has only `workers` can run it."""
        call = self._handle.__ray_call__.options(concurrency_group="control")
        return call.remote(lambda worker: {**worker.ping(), "node_id": ray.get_runtime_context().get_node_id()})

    def _take_in(self, sign: dict[str, Any]) -> None:
        self.answered, self._silence = True, 0.0
        self.node_id, self.oom_kills = sign["node_id"], sign["oom_kills"]
        if self.attempt_id is not None or self.checked:
            return
        if sign["attempt_id"] is not None:
            self._since_ping = self._lease  # it was still putting its last attempt away: ask again at once
            return
        memory = (sign["rss_bytes"], sign["device_bytes"])
        self._first_memory = self._first_memory or memory
        self.grown_bytes = max(now - first for now, first in zip(memory, self._first_memory, strict=True))
        self.checked = True

    def hardware(self, seconds: float) -> dict[str, Any]:
        """What it runs on; a `RayError` when it does not say in time."""
        facts: dict[str, Any] = ray.get(self._handle.hardware.remote(), timeout=seconds)
        return facts


def make_actor(
    placement: Placement, arguments: tuple[Any, ...], where: Any = None, excluded: Collection[str] = ()
) -> Any:
    """A new actor, which neither restarts nor retries by itself: that is the runner's decision.

    `where` is Ray's scheduling strategy, of a group that reserves what `placement` says for this actor; without one it
    starts on no node that is `excluded`, by id.
    """
    remote: Any = ray.remote  # its types do not know concurrency_groups
    options: dict[str, Any] = {"resources": placement.further(), "memory": placement.memory or None}
    if where is not None:
        options["scheduling_strategy"] = where
    elif selector := elsewhere(placement.labels, excluded):
        options["label_selector"] = selector
    sized = remote(
        num_cpus=placement.cpus,
        num_gpus=placement.gpus or 0,
        max_restarts=0,
        max_task_retries=0,
        concurrency_groups=_CONTROL,
        **options,
    )
    return sized(Worker).remote(*arguments)
