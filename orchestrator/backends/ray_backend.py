"""Attempts in warm Ray actors, on this machine or on the cluster at `address`.

Actors are made when first needed, reused for the next attempt, and replaced after any failure or stop: a failed process
is never trusted again. Retrying is the runner's decision, so actors neither restart nor retry by themselves.
"""

import contextlib
import logging
import os
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RayError, RayTaskError

from orchestrator.backends.backend import AttemptEnded, AttemptReported, Event
from orchestrator.errors import ResourceError, ServiceError
from workers.actor import Worker
from workers.protocol import Execute, Failure, FailureReason, MetricReport, Request, TrialOutcome

_OBJECT_STORE_BYTES = 256 * 1024 * 1024
"""Only small plain data travels; token shards are read from files."""
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # an actor that reserves no GPU sees none
    "RAY_worker_niceness": "0",  # a latency measured at low priority is somebody else's
}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class _Busy:
    """One actor at work."""

    attempt_id: str
    actor: Any
    stream: Any


class RayBackend:
    """As many slots as the cluster has room for attempts of the given size."""

    name = "ray"

    def __init__(
        self,
        *,
        cpus: float = 1,
        gpus: float | None = None,
        address: str | None = None,
        execute: Execute | None = None,
        hardware: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self._owned = _connect(address)
        self._cpus = cpus
        self._gpus = (1.0 if any(node.get("GPU", 0) for node in _nodes()) else 0.0) if gpus is None else gpus
        try:
            self.slots = _slots(cpus, self._gpus)
        except ResourceError:
            self._disconnect()
            raise
        self._arguments = (execute, hardware)
        self._waiting: deque[Request] = deque()
        self._idle: list[Any] = []
        self._busy: list[_Busy] = []

    def hardware(self) -> Mapping[str, Any]:
        """What a worker runs on, asked of one."""
        actor = self._idle.pop() if self._idle else self._make_actor()
        try:
            facts: dict[str, Any] = ray.get(actor.hardware.remote())
        except RayError as error:
            raise ServiceError(f"a worker cannot say what it runs on: {_last_line(error)}; see `plt doctor`") from error
        self._idle.append(actor)
        return facts

    def submit(self, request: Request) -> None:
        """Start the attempt, or queue it while every slot is taken."""
        self._waiting.append(request)
        self._fill()

    def poll(self, timeout: float) -> list[Event]:
        """Events of all actors, waiting at most `timeout` seconds for the first."""
        if not self._busy:
            return []
        by_stream = {busy.stream: busy for busy in self._busy}
        ready, _ = ray.wait(list(by_stream), num_returns=1, timeout=timeout)
        if ready:
            ready, _ = ray.wait(list(by_stream), num_returns=len(by_stream), timeout=0)
        events = [self._next_event(by_stream[stream]) for stream in ready]
        self._fill()
        return events

    def stop(self, attempt_id: str) -> None:
        """Forget the attempt; the actor that runs it is killed, which frees its devices at once."""
        self._waiting = deque(request for request in self._waiting if request.attempt_id != attempt_id)
        for busy in [busy for busy in self._busy if busy.attempt_id == attempt_id]:
            self._busy.remove(busy)
            ray.kill(busy.actor)
        self._fill()

    def close(self) -> None:
        """Kill every actor, and the cluster if this backend started it."""
        self._waiting.clear()
        for actor in [*self._idle, *(busy.actor for busy in self._busy)]:
            with contextlib.suppress(RayError):
                ray.kill(actor)
        self._idle.clear()
        self._busy.clear()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._owned and ray.is_initialized():
            ray.shutdown()

    def _make_actor(self) -> Any:
        actor_class = ray.remote(num_cpus=self._cpus, num_gpus=self._gpus, max_restarts=0, max_task_retries=0)(Worker)
        return actor_class.remote(*self._arguments)

    def _fill(self) -> None:
        while self._waiting and len(self._busy) < self.slots:
            request = self._waiting.popleft()
            actor = self._idle.pop() if self._idle else self._make_actor()
            stream = actor.run.options(num_returns="streaming").remote(request)
            self._busy.append(_Busy(request.attempt_id, actor, stream))

    def _next_event(self, busy: _Busy) -> Event:
        item = _receive(busy.stream)
        if isinstance(item, MetricReport):
            return AttemptReported(busy.attempt_id, item)
        self._busy.remove(busy)
        if item.failure is None:
            self._idle.append(busy.actor)
        else:
            with contextlib.suppress(RayError):
                ray.kill(busy.actor)
        return AttemptEnded(busy.attempt_id, item)


def _connect(address: str | None) -> bool:
    """Join the cluster at `address` or start one here; True when this process started or joined it."""
    if ray.is_initialized():
        return False
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)  # it tells that authentication is on
    try:
        ray.init(
            address=address or "local",
            include_dashboard=None if address else False,
            object_store_memory=None if address else _OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError, RayError) as error:
        where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
        raise ServiceError(f"cannot use {where}: {_first_line(error)}; try --backend local") from error
    return True


def _nodes() -> list[dict[str, float]]:
    """Resources of every living node."""
    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node["Resources"] for node in known if node["Alive"]]


def _slots(cpus: float, gpus: float) -> int:
    """How many attempts fit on the nodes; a size that fits on none is refused with what there is."""
    nodes = _nodes()
    fit = 0
    for resources in nodes:
        by_cpu = resources.get("CPU", 0) / cpus if cpus else float("inf")
        by_gpu = resources.get("GPU", 0) / gpus if gpus else float("inf")
        fit += int(min(by_cpu, by_gpu))
    if fit < 1:
        have = "; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in nodes) or "no node"
        raise ResourceError(
            f"resources.train asks for {cpus:g} CPUs and {gpus:g} GPUs, and no node has them (nodes: {have}); "
            "ask for less or give --address of a larger cluster"
        )
    return fit


def _receive(stream: Any) -> MetricReport | TrialOutcome:
    """The stream's next item; every way in which a worker can die becomes an outcome with its reason."""
    try:
        item: MetricReport | TrialOutcome = ray.get(next(stream))
        return item
    except StopIteration:
        return _failed(FailureReason.EXCEPTION, "the worker ended without an outcome")
    except OutOfMemoryError as error:
        return _failed(FailureReason.HOST_OOM, _first_line(error))
    except RayActorError as error:
        if "creation task" in str(error):
            return _failed(FailureReason.EXCEPTION, f"a worker could not start: {_last_line(error)}", _plain(error))
        return _failed(FailureReason.WORKER_LOST, _first_line(error))
    except RayTaskError as error:
        return _failed(FailureReason.EXCEPTION, _last_line(error), _plain(error))
    except RayError as error:
        return _failed(FailureReason.WORKER_LOST, _first_line(error))


def _plain(error: BaseException) -> str:
    """The error's text without terminal colours."""
    return _ANSI.sub("", str(error)).strip() or type(error).__name__


def _first_line(error: BaseException) -> str:
    return _plain(error).splitlines()[0]


def _last_line(error: BaseException) -> str:
    return _plain(error).splitlines()[-1]


def _failed(reason: FailureReason, message: str, traceback: str = "") -> TrialOutcome:
    return TrialOutcome(failure=Failure(reason=reason, message=message, traceback=traceback))
