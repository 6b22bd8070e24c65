"""One contract for every backend."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from probes import probe, probe_hardware

from orchestrator.backends.backend import AttemptEnded, AttemptReported, Backend
from orchestrator.backends.local_backend import LocalBackend
from workers.config import BenchmarkConfig, ModelConfig
from workers.protocol import BenchmarkRequest, FailureReason, TrialOutcome

TINY = ModelConfig(
    vocab_size=4,
    hidden_size=4,
    intermediate_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
)


def request(attempt_id: str) -> BenchmarkRequest:
    return BenchmarkRequest(attempt_id=attempt_id, model=TINY, benchmark=BenchmarkConfig())


@pytest.fixture(scope="module")
def ray_backend() -> Iterator[Backend]:
    import probes
    from ray import cloudpickle

    from orchestrator.backends.ray_backend import RayBackend

    cloudpickle.register_pickle_by_value(probes)
    backend = RayBackend(execute=probe, hardware=probe_hardware)
    yield backend
    backend.close()


@pytest.fixture(params=["local", "ray"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "ray":
        yield request.getfixturevalue("ray_backend")
        return
    local = LocalBackend(execute=probe, hardware=probe_hardware)
    yield local
    local.close()


def drain(backend: Backend, ids: set[str]) -> tuple[dict[str, list[int]], dict[str, TrialOutcome]]:
    """Poll until every attempt has ended: reported steps and outcome of each."""
    steps: dict[str, list[int]] = {attempt_id: [] for attempt_id in ids}
    ended: dict[str, TrialOutcome] = {}
    while set(ended) != ids:
        for event in backend.poll(5.0):
            assert event.attempt_id not in ended
            if isinstance(event, AttemptReported):
                steps[event.attempt_id].append(event.report.step)
            else:
                assert isinstance(event, AttemptEnded)
                ended[event.attempt_id] = event.outcome
    return steps, ended


def test_more_attempts_than_slots_all_report_in_order_and_end_once(backend: Backend) -> None:
    ids = {f"ok-{index}" for index in range(2 * backend.slots + 1)}
    for attempt_id in sorted(ids):
        backend.submit(request(attempt_id))
    steps, ended = drain(backend, ids)
    assert all(seen == [0, 1, 2] for seen in steps.values())
    assert {outcome.info["id"] for outcome in ended.values()} == ids
    assert backend.poll(0.0) == []


@pytest.mark.parametrize(
    ("kind", "reason", "words"),
    [
        ("raise", FailureReason.EXCEPTION, "ValueError: a probe that raises"),
        ("mute", FailureReason.EXCEPTION, "without an outcome"),
        ("fail", FailureReason.DIVERGED, "loss is nan"),
    ],
)
def test_a_failure_is_an_outcome_and_the_backend_goes_on(
    backend: Backend, kind: str, reason: FailureReason, words: str
) -> None:
    backend.submit(request(f"{kind}-1"))
    backend.submit(request("ok-after"))
    _, ended = drain(backend, {f"{kind}-1", "ok-after"})
    failure = ended[f"{kind}-1"].failure
    assert failure is not None
    assert failure.reason is reason
    assert words in failure.message
    assert ended["ok-after"].failure is None


def test_a_stopped_attempt_is_never_heard_of_again(backend: Backend) -> None:
    for index in range(backend.slots + 1):
        backend.submit(request(f"ok-stop{index}"))
    first = backend.poll(30.0)
    assert first
    stopped = {first[0].attempt_id, f"ok-stop{backend.slots}"}
    for attempt_id in stopped:
        backend.stop(attempt_id)
    rest = {f"ok-stop{index}" for index in range(backend.slots + 1)} - stopped
    backend.submit(request("ok-last"))
    ended: set[str] = {event.attempt_id for event in first[1:] if isinstance(event, AttemptEnded)}
    while ended != rest | {"ok-last"}:
        for event in backend.poll(5.0):
            assert event.attempt_id not in stopped
            if isinstance(event, AttemptEnded):
                ended.add(event.attempt_id)


def test_hardware_is_asked_of_a_worker(backend: Backend) -> None:
    assert backend.hardware() == {"device": "probe"}


def test_a_killed_worker_is_lost_and_replaced(ray_backend: Backend) -> None:
    ray_backend.submit(request("die-1"))
    ray_backend.submit(request("ok-1"))
    _, ended = drain(ray_backend, {"die-1", "ok-1"})
    failure = ended["die-1"].failure
    assert failure is not None
    assert failure.reason is FailureReason.WORKER_LOST
    assert ended["ok-1"].failure is None


def test_actors_stay_warm(ray_backend: Backend) -> None:
    pids = set()
    for index in range(4):
        ray_backend.submit(request(f"ok-warm{index}"))
        _, ended = drain(ray_backend, {f"ok-warm{index}"})
        pids.add(ended[f"ok-warm{index}"].metrics["pid"])
    assert len(pids) <= ray_backend.slots


def test_resources_that_no_node_has_are_refused_with_what_there_is(ray_backend: Backend) -> None:
    from orchestrator.backends.ray_backend import RayBackend
    from orchestrator.errors import ResourceError

    del ray_backend
    with pytest.raises(ResourceError, match=r"10000 CPUs and 0 GPUs.*nodes: \d+ CPUs"):
        RayBackend(cpus=10_000)


def cannot_start() -> None:
    raise OSError("no space left for this worker")


class Broken:
    """Raises when a worker unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (cannot_start, ())


def test_an_actor_that_cannot_start_says_why(ray_backend: Backend) -> None:
    import probes
    from ray import cloudpickle

    from orchestrator.backends.ray_backend import RayBackend

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    assert probes.probe is probe
    backend = RayBackend(execute=Broken())  # type: ignore[arg-type]
    backend.submit(request("ok-1"))
    _, ended = drain(backend, {"ok-1"})
    failure = ended["ok-1"].failure
    assert failure is not None
    assert failure.reason is FailureReason.EXCEPTION
    assert "no space left for this worker" in failure.message
    assert ray_backend.slots >= 1
