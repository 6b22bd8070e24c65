"""Several actors carry out one attempt: all or none of them, and what happens to one happens to all."""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gang_probes
import pytest
from probes import probe_hardware
from trials import STEPS, attempt, exact, make_trial, run

from orchestrator.backends.backend import AttemptEnded, AttemptReported, Backend
from orchestrator.backends.placement import Placement
from orchestrator.errors import ResourceError
from workers.protocol import Execute, FailureReason, Gang, TrialOutcome, TrialRequest

MakeGangs = Callable[..., Any]
PAIR = Placement(cpus=4, gpus=0, workers=2)


@pytest.fixture
def make_gangs(ray_cluster: None) -> Iterator[MakeGangs]:
    from orchestrator.backends.ray_backend import RayBackend

    del ray_cluster
    made: list[RayBackend] = []

    def make(execute: Execute | None, train: Placement = PAIR, **settings: Any) -> RayBackend:
        made.append(RayBackend(train=train, execute=execute, hardware=probe_hardware, **settings))
        return made[-1]

    yield make
    for backend in made:
        backend.close()


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrialRequest:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "attempt-1").mkdir()
    return replace(make_trial(tmp_path), gang=Gang(workers=2, parallel="fsdp"))


def ended(backend: Backend, request: TrialRequest) -> tuple[list[int], TrialOutcome]:
    """Carry it out: the steps that were reported, and the outcome."""
    backend.submit(request)
    steps: list[int] = []
    while True:
        for event in backend.poll(5.0):
            assert event.attempt_id == request.attempt_id
            if isinstance(event, AttemptEnded):
                return steps, event.outcome
            steps.append(event.report.step)


def groups() -> set[str]:
    """Placement groups that hold places."""
    from ray.util import placement_group_table

    return {name for name, group in placement_group_table().items() if group["state"] == "CREATED"}


def test_a_lost_rank_ends_the_attempt_and_the_trial_goes_on_from_its_checkpoint(
    make_gangs: MakeGangs, trial: TrialRequest, tmp_path: Path
) -> None:
    _, alone = run(replace(trial, gang=None, folder=str(tmp_path / "alone")))
    assert alone is not None
    backend = make_gangs(gang_probes.last_dies)
    _, lost = ended(backend, trial)
    assert lost.failure is not None
    assert lost.failure.reason is FailureReason.WORKER_LOST
    assert lost.failure.message.startswith("rank 1: the worker process on ")
    assert not groups()
    backend.close()
    backend, held = make_gangs(None), []
    for number in (2, 3):  # the third by the same actors
        again = replace(attempt(trial, number), attempt_id=f"0-{number}")
        steps, outcome = ended(backend, again)
        assert outcome.failure is None, outcome.failure
        assert max(steps) == STEPS
        assert exact(outcome.metrics) == pytest.approx(exact(alone.metrics), rel=1e-6)
        assert number == 3 or outcome.info["resumed"]["from"] == "attempt-1"
        held.append(groups())
    assert len(held[0]) == 1
    assert held[0] == held[1]


def test_a_stop_reaches_every_rank_and_the_actors_stay(make_gangs: MakeGangs, trial: TrialRequest) -> None:
    backend, folder = make_gangs(gang_probes.endless, grace=60.0), Path(trial.folder)
    pids: list[set[str]] = []
    for number in (1, 2):
        backend.submit(replace(trial, attempt_id=f"a-{number}"))
        while not all((folder / f"rank-{rank}.pid").exists() for rank in (0, 1)):
            for event in backend.poll(1.0):
                assert isinstance(event, AttemptReported)
                assert event.report.metrics["rank"] == 0
        backend.stop(f"a-{number}")
        while not all((folder / f"rank-{rank}.stopped").exists() for rank in (0, 1)):
            assert backend.poll(0.5) == []
        pids.append({path.read_text() for path in folder.glob("*.pid")})
        for path in folder.glob("rank-*"):
            path.unlink()
    assert len(pids[0]) == 2
    assert pids[0] == pids[1]


def test_a_silent_rank_is_given_up_after_its_lease(make_gangs: MakeGangs, trial: TrialRequest) -> None:
    backend, pid = make_gangs(gang_probes.waiting, lease=1.5), Path(trial.folder) / "rank-1.pid"
    backend.submit(trial)
    while not pid.exists():
        backend.poll(0.5)
    os.kill(int(pid.read_text()), signal.SIGSTOP)
    events: list[Any] = []
    while not any(isinstance(event, AttemptEnded) for event in events):
        events += backend.poll(5.0)
    failure = events[-1].outcome.failure
    assert failure.reason is FailureReason.WORKER_LOST
    assert failure.message == "no sign of life for 1.5 s (process frozen or machine gone)"
    assert not groups()


def test_who_only_lost_the_others_is_not_the_reason(make_gangs: MakeGangs, trial: TrialRequest) -> None:
    _, outcome = ended(make_gangs(gang_probes.told), trial)
    assert outcome.failure is not None
    assert (outcome.failure.reason, outcome.failure.message) == (FailureReason.GPU_OOM, "rank 1: too much")


def test_it_waits_for_all_places_says_so_and_gives_up_after_a_time(make_gangs: MakeGangs, trial: TrialRequest) -> None:
    import ray
    from ray.util import placement_group, remove_placement_group

    now = [0.0]
    backend = make_gangs(gang_probes.told, replace(PAIR, timeout=100.0), clock=lambda: now[0])
    others = placement_group([{"CPU": 7}])
    ray.get(others.ready())
    backend.submit(trial)
    for _ in range(2):  # the first looks at what is free
        now[0] += 6.0
        assert backend.poll(0.0) == []
    why = backend.queued_because()
    assert why is not None
    assert why.startswith("1 waiting for 2 workers with 4 CPUs and 0 GPUs each to start; free: 1 CPUs, 2 GPUs")
    assert len(groups()) == 1
    now[0] += 100.0
    (event,) = backend.poll(0.0)
    assert isinstance(event, AttemptEnded)
    assert event.outcome.failure is not None
    assert event.outcome.failure.reason is FailureReason.TIMEOUT
    assert event.outcome.failure.message.startswith("no place for 2 workers with 4 CPUs and 0 GPUs each within 100 s")
    remove_placement_group(others)
    _, outcome = ended(backend, replace(trial, attempt_id="again"))
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.GPU_OOM  # its own end: it had places


@pytest.mark.parametrize(
    ("train", "benchmark", "words"),
    [
        (
            replace(PAIR, workers=3),
            None,
            "train asks for 3 workers with 4 CPUs and 0 GPUs each, and no set of nodes has",
        ),
        (replace(PAIR, strategy="strict_spread"), None, "no set of nodes has room for all of them"),
        (replace(PAIR, accelerator="B200"), None, "an accelerator of type B200 each"),
        (replace(PAIR, labels={"zone": "b"}), None, "label zone=b each, and no set of nodes"),
        (PAIR, Placement(gpus=0, custom={"fast_disk": 3}), "benchmark asks for 1 CPUs and 0 GPUs, 3 fast_disk, and no"),
        (PAIR, Placement(gpus=0, memory=10**15), "1e+06 GB of memory, and no node has them"),
    ],
)
def test_what_this_cluster_can_never_meet_is_refused_with_what_there_is(
    make_gangs: MakeGangs, train: Placement, benchmark: Placement | None, words: str
) -> None:
    with pytest.raises(ResourceError) as refused:
        make_gangs(None, train, benchmark=benchmark)
    assert words in str(refused.value)
    assert "(nodes: 8 CPUs, 2 GPUs, accelerator_type:H100, 2 fast_disk, zone=a)" in str(refused.value)
