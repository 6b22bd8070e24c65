"""Actors that are killed, frozen, deaf, bloated or starved: nothing is lost, and nothing late is believed."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from probes import probe, probe_hardware

from orchestrator.backends.backend import AttemptEnded, AttemptReported, Backend, Event
from orchestrator.backends.placement import Placement
from workers.protocol import BenchmarkRequest, Execute, Failure, FailureReason, TrialOutcome

MakeRequest = Callable[[str], BenchmarkRequest]
Drain = Callable[[Backend, set[str]], tuple[dict[str, list[int]], dict[str, TrialOutcome]]]
MakeBackend = Callable[..., Any]


@pytest.fixture
def make_backend(ray_cluster: None) -> Iterator[MakeBackend]:
    from orchestrator.backends.ray_backend import RayBackend

    del ray_cluster
    made: list[RayBackend] = []

    def make(
        execute: Execute = probe, cpus: float = 8, gpus: float | None = 0, timeout: float = 3600.0, **settings: Any
    ) -> RayBackend:
        train = Placement(cpus=cpus, gpus=gpus, timeout=timeout)
        made.append(RayBackend(train=train, execute=execute, hardware=probe_hardware, **settings))
        return made[-1]

    yield make
    for backend in made:
        backend.close()


def next_events(backend: Backend) -> list[Event]:
    while True:
        events = backend.poll(5.0)
        if events:
            return events


def first_pid(backend: Backend) -> int:
    """Of the actor that reports first."""
    (event,) = next_events(backend)
    assert isinstance(event, AttemptReported)
    return int(event.report.metrics["pid"])


def failure_of(outcome: TrialOutcome) -> Failure:
    assert outcome.failure is not None
    assert "\n" not in outcome.failure.message
    return outcome.failure


def pid_of(backend: Backend, drain: Drain, request: BenchmarkRequest) -> int:
    """Run an attempt: which process did it?"""
    backend.submit(request)
    _, ended = drain(backend, {request.attempt_id})
    return int(ended[request.attempt_id].metrics["pid"])


def test_a_killed_worker_is_lost_and_replaced(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain
) -> None:
    backend = make_backend()
    backend.submit(make_request("die-1"))
    backend.submit(make_request("ok-1"))
    _, ended = drain(backend, {"die-1", "ok-1"})
    failure = failure_of(ended["die-1"])
    assert failure.reason is FailureReason.WORKER_LOST
    assert "died: Worker unexpectedly exits" in failure.message
    assert "OOM" not in failure.message
    assert ended["ok-1"].failure is None


def test_a_frozen_worker_is_given_up_after_its_lease_and_never_believed_again(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    backend = make_backend(cpus=4, lease=1.5)
    backend.submit(make_request(f"hold-1@{pipe}"))
    frozen = first_pid(backend)
    pid_of(backend, drain, make_request("ok-beside"))
    os.kill(frozen, signal.SIGSTOP)
    try:
        (event,) = next_events(backend)
    finally:
        os.kill(frozen, signal.SIGCONT)
    assert isinstance(event, AttemptEnded)
    failure = failure_of(event.outcome)
    assert failure.reason is FailureReason.WORKER_LOST
    assert failure.message == "no sign of life for 1.5 s (process frozen or machine gone)"
    backend.submit(make_request(f"hold-2@{pipe}"))
    assert first_pid(backend) != frozen
    pipe.write_bytes(b"")  # lets both go on, if the first one still lives
    _, ended = drain(backend, {f"hold-2@{pipe}"})
    assert ended[f"hold-2@{pipe}"].failure is None


def test_polling_a_frozen_worker_takes_no_longer_than_asked(
    make_backend: MakeBackend, make_request: MakeRequest
) -> None:
    backend = make_backend(lease=3600.0)
    backend.submit(make_request("deaf-1"))
    pid = first_pid(backend)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert backend.poll(0.2) == []
        assert backend.poll(0.0) == []
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_driver_that_was_away_for_longer_than_the_lease_gives_nobody_up(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    now = [0.0]
    backend = make_backend(lease=60.0, clock=lambda: now[0])
    attempt = f"hold-1@{pipe}"
    backend.submit(make_request(attempt))
    while not backend.poll(0.0):
        pass
    now[0] += 10_000.0
    assert backend.poll(0.0) == []
    pipe.write_bytes(b"")
    _, ended = drain(backend, {attempt})
    assert ended[attempt].failure is None


def test_two_attempts_run_beside_each_other(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    backend = make_backend(cpus=4)
    ids = {f"hold-1@{pipe}", f"knock-1@{pipe}"}
    for attempt_id in sorted(ids):
        backend.submit(make_request(attempt_id))
    _, ended = drain(backend, ids)
    assert all(outcome.failure is None for outcome in ended.values())


def test_actors_stay_warm_after_an_attempt_and_after_one_that_stopped(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain, tmp_path: Path
) -> None:
    backend = make_backend()
    pids = {pid_of(backend, drain, make_request("ok-1"))}
    backend.submit(make_request(f"endless-1@{tmp_path}/left"))
    pids.add(first_pid(backend))
    backend.stop(f"endless-1@{tmp_path}/left")
    pids.add(pid_of(backend, drain, make_request("ok-2")))
    assert len(pids) == 1


def test_an_attempt_that_does_not_stop_holds_its_slot_until_it_is_killed(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain
) -> None:
    now = [0.0]
    backend = make_backend(grace=5.0, clock=lambda: now[0])
    backend.submit(make_request("deaf-1"))
    while not (events := backend.poll(0.0)):
        pass
    backend.stop("deaf-1")
    backend.submit(make_request("ok-1"))
    now[0] += 4.9
    assert backend.poll(0.0) == []
    assert backend.queued_because() == "1 waiting for one of 1 slots"
    now[0] += 0.2
    assert backend.poll(0.0) == []
    _, ended = drain(backend, {"ok-1"})
    assert ended["ok-1"].metrics["pid"] != events[0].report.metrics["pid"]


def test_an_actor_whose_memory_has_grown_is_replaced(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain
) -> None:
    from orchestrator.backends.ray_backend import Recycling

    backend = make_backend(recycling=Recycling(grown_bytes=300_000_000))
    pids = [pid_of(backend, drain, make_request(f"grow-{index}")) for index in range(4)]
    assert pids[0] == pids[1] == pids[2] != pids[3]  # 200 MB after the first, then 200 and 400 more


def test_an_actor_is_replaced_after_a_number_of_attempts(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain
) -> None:
    from orchestrator.backends.ray_backend import Recycling

    backend = make_backend(recycling=Recycling(attempts=2))
    pids = [pid_of(backend, drain, make_request(f"ok-{index}")) for index in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_parts_of_gpus_are_shared_and_not_split(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain, tmp_path: Path
) -> None:
    assert make_backend(cpus=1, gpus=0.4).slots == 4
    assert make_backend(cpus=1, gpus=0.1).slots == 8
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    backend = make_backend(cpus=0.1, gpus=0.25)
    assert backend.slots == 8
    ids = {f"hold-{index}@{pipe}" for index in range(8)}
    for attempt_id in ids:
        backend.submit(make_request(attempt_id))
    reported: set[str] = set()
    while reported != ids:
        reported |= {event.attempt_id for event in backend.poll(5.0)}
    pipe.write_bytes(b"")
    _, ended = drain(backend, ids)
    assert len({outcome.metrics["pid"] for outcome in ended.values()}) == 8


@pytest.mark.skipif(
    not os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK), reason="needs a writable control group (root, v1)"
)
def test_a_worker_that_the_kernel_killed_for_memory_is_out_of_memory(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain
) -> None:
    backend = make_backend()
    pid_of(backend, drain, make_request("ok-1"))
    backend.submit(make_request("starve-1"))
    pid = first_pid(backend)
    try:
        _, ended = drain(backend, {"starve-1"})
    finally:
        Path(f"/sys/fs/cgroup/memory/probe-{pid}").rmdir()
    failure = failure_of(ended["starve-1"])
    assert failure.reason is FailureReason.HOST_OOM
    assert "the kernel killed the worker" in failure.message


def test_resources_that_no_node_has_are_refused_with_what_there_is(make_backend: MakeBackend) -> None:
    from orchestrator.errors import ResourceError

    with pytest.raises(ResourceError, match=r"10000 CPUs and 0 GPUs.*nodes: 8 CPUs, 2 GPUs"):
        make_backend(cpus=10_000)
    with pytest.raises(ResourceError, match="1 CPUs and 3 GPUs"):
        make_backend(cpus=1, gpus=3)


def cannot_start() -> None:
    raise OSError("no space left for this worker")


class Broken:
    """Raises when a worker unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (cannot_start, ())


def test_an_actor_that_cannot_start_says_why(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain
) -> None:
    import sys

    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    backend = make_backend(execute=Broken())
    backend.submit(make_request("ok-1"))
    _, ended = drain(backend, {"ok-1"})
    failure = failure_of(ended["ok-1"])
    assert failure.reason is FailureReason.EXCEPTION
    assert "no space left for this worker" in failure.message


def actor_pids() -> set[int]:
    """Processes of our actors, on whatever they work."""
    running = [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]
    return {process.pid for process in running if "ray::Worker" in " ".join(process.cmdline())}


def test_actors_that_were_started_beforehand_take_the_first_attempts(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain
) -> None:
    """No more than there is room for, and no further ones beside them."""
    backend, before = make_backend(cpus=4), actor_pids()
    backend.warm(50)
    until = time.monotonic() + 60
    while len(warm := actor_pids() - before) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    for attempt_id in ("ok-1", "ok-2"):
        backend.submit(make_request(attempt_id))
    _, ended = drain(backend, {"ok-1", "ok-2"})
    assert len(warm) == 2
    assert {int(outcome.metrics["pid"]) for outcome in ended.values()} <= warm
    assert actor_pids() - before == warm


def test_an_idle_actor_lets_go_of_what_an_attempt_waits_for(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain, tmp_path: Path
) -> None:
    """Half of the cluster goes to somebody else while an attempt waits for an actor of its own."""
    import ray

    @ray.remote(num_cpus=4)
    class Somebody:
        def there(self) -> bool:
            return True

    somebody = Somebody.remote()
    assert ray.get(somebody.there.remote(), timeout=60)
    backend = make_backend(cpus=4, grace=1.0)
    running, waiting = f"endless-1@{tmp_path}/1", "ok-2"
    backend.submit(make_request(running))
    assert next_events(backend)
    backend.submit(make_request(waiting))
    assert backend.poll(0.0) is not None
    backend.stop(running)
    _, ended = drain(backend, {waiting})
    assert ended[waiting].failure is None
    ray.kill(somebody)


def test_one_actor_that_finds_no_place_says_so_and_gives_up_after_a_time(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain
) -> None:
    """Seven of eight CPUs belong to somebody else."""
    import ray
    from ray.util import placement_group, remove_placement_group

    others = placement_group([{"CPU": 7}])
    ray.get(others.ready())
    now = [0.0]
    backend = make_backend(cpus=4, timeout=100.0, clock=lambda: now[0])
    backend.submit(make_request("ok-1"))
    for _ in range(2):  # the first looks at what is free
        now[0] += 6.0
        assert backend.poll(0.0) == []
    why = backend.queued_because()
    assert why is not None
    assert why.startswith("1 waiting for 4 CPUs and 0 GPUs to start; free: 1 CPUs, 2 GPUs")
    now[0] += 100.0
    (event,) = backend.poll(0.0)
    assert isinstance(event, AttemptEnded)
    failure = failure_of(event.outcome)
    assert failure.reason is FailureReason.TIMEOUT
    assert failure.message.startswith("no place for 4 CPUs and 0 GPUs within 100 s, see resources.placement_timeout")
    remove_placement_group(others)
    backend.submit(make_request("ok-2"))
    _, ended = drain(backend, {"ok-2"})
    assert ended["ok-2"].failure is None


def test_a_node_that_keeps_failing_is_blamed_and_used_where_there_is_no_other(
    make_backend: MakeBackend, make_request: MakeRequest, drain: Drain
) -> None:
    backend = make_backend()
    messages = []
    for number in range(3):
        backend.submit(make_request(f"die-{number}"))
        _, ended = drain(backend, {f"die-{number}"})
        messages.append(failure_of(ended[f"die-{number}"]).message)
    assert ["avoided" in message for message in messages] == [False, False, True]
    assert "is avoided for 10 min: its last 3 attempts failed, of 3 trials" in messages[2]
    backend.submit(make_request("ok-1"))
    _, ended = drain(backend, {"ok-1"})
    assert ended["ok-1"].failure is None
    assert ended["ok-1"].info["node"] in messages[2]
