"""Attempts are counted as Ray places them, and each kind has the machines that it asked for."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from probes import probe, probe_hardware

from orchestrator.backends.backend import AttemptEnded
from orchestrator.backends.placement import Placement, Strategy
from workers.protocol import BenchmarkRequest, TrialRequest

MakeRequest = Callable[[str], BenchmarkRequest]
MakeTrial = Callable[[str, Path], TrialRequest]


def most_attempts(fits: tuple[int, ...], workers: int, strategy: Strategy) -> int:
    """By trying: place one attempt in every possible way, then as many more as possible."""
    if strategy == "strict_pack":
        ways = [tuple(workers if node == chosen else 0 for node in range(len(fits))) for chosen in range(len(fits))]
    else:
        most = 1 if strategy == "strict_spread" else workers
        ways = [way for way in itertools.product(range(most + 1), repeat=len(fits)) if sum(way) == workers]
    rests = [tuple(have - take for have, take in zip(fits, way, strict=True)) for way in ways]
    return max((1 + most_attempts(rest, workers, strategy) for rest in rests if min(rest) >= 0), default=0)


@pytest.mark.parametrize("strategy", ["pack", "spread", "strict_pack", "strict_spread"])
def test_room_for_several_workers_is_what_trying_every_way_finds(strategy: Strategy) -> None:
    for fits in itertools.product(range(4), repeat=3):
        nodes = [({"CPU": float(2 * fit + 1)}, {}) for fit in fits]  # one CPU is always left over
        for workers in (1, 2, 3):
            placement = Placement(cpus=2, gpus=0, workers=workers, strategy=strategy)
            assert placement.slots(nodes) == most_attempts(fits, workers, strategy), (fits, workers)


def test_only_nodes_that_have_everything_count() -> None:
    h100 = ({"CPU": 8.0, "GPU": 2.0, "accelerator_type:H100": 1.0, "memory": 64e9, "disk": 1.0}, {"zone": "a"})
    l4 = ({"CPU": 8.0, "GPU": 4.0, "accelerator_type:L4": 1.0, "memory": 16e9}, {"zone": "b"})

    def slots(**needs: Any) -> int:
        return Placement(gpus=1, **needs).slots([h100, l4])

    assert slots() == 6
    assert slots(accelerator="H100") == 2
    assert slots(accelerator="A100") == 0
    assert slots(labels={"zone": "b"}) == 4
    assert slots(labels={"zone": "b", "rack": "1"}) == 0
    assert slots(memory=10**10) == 3
    assert slots(custom={"disk": 1}) == 1
    assert Placement(gpus=1, workers=3, strategy="strict_pack").slots([h100, l4]) == 1
    assert Placement(gpus=1, workers=2, strategy="strict_spread").slots([h100, l4]) == 2


@pytest.fixture
def two_kinds(ray_cluster: None) -> Iterator[Any]:
    """Training takes all CPUs; a benchmark needs something that training does not."""
    from orchestrator.backends.ray_backend import RayBackend

    del ray_cluster
    backend = RayBackend(
        train=Placement(cpus=4, gpus=0),
        benchmark=Placement(cpus=8, gpus=0, accelerator="H100", labels={"zone": "a"}, custom={"fast_disk": 1}),
        execute=probe,
        hardware=probe_hardware,
        grace=0.2,
    )
    yield backend
    backend.close()


def test_a_benchmark_gets_its_own_machine_before_further_trials(
    two_kinds: Any, make_request: MakeRequest, make_trial: MakeTrial, tmp_path: Path
) -> None:
    """It waits for both trials that run, and the two that come after it wait for it, whatever slots are free."""
    two_kinds.warm(9)
    assert two_kinds.hardware() == {"device": "probe"}
    trials = [make_trial(f"endless-{number}@{tmp_path}/{number}", tmp_path / str(number)) for number in range(2)]
    later = make_trial("ok-later", tmp_path / "later")
    for trial in trials:
        two_kinds.submit(trial)
    reported: set[str] = set()
    while len(reported) < 2:
        reported |= {event.attempt_id for event in two_kinds.poll(5.0)}
    two_kinds.stop(trials[0].attempt_id)
    two_kinds.submit(make_request("ok-benchmark"))
    two_kinds.submit(later)
    while "free: 4 CPUs" not in (two_kinds.queued_because() or ""):
        assert not any(isinstance(event, AttemptEnded) for event in two_kinds.poll(1.0))
    assert "1 waiting for 8 CPUs and 0 GPUs, an accelerator of type H100, 1 fast_disk, label zone=a to start" in (
        two_kinds.queued_because()
    )
    two_kinds.stop(trials[1].attempt_id)
    order: list[str] = []
    while len(order) < 2:
        order += [event.attempt_id for event in two_kinds.poll(5.0) if isinstance(event, AttemptEnded)]
    assert order == ["ok-benchmark", "ok-later"]
