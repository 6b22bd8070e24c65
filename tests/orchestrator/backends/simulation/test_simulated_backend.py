"""The simulated cluster against what its definition says: times, checkpoints, no device with two attempts."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from orchestrator.backends.backend import AttemptEnded, AttemptReported
from orchestrator.backends.simulation.fleet import Node, even_fleet, place_fastest, place_reliable
from orchestrator.backends.simulation.simulated_backend import SimulatedBackend
from orchestrator.backends.simulation.virtual_clock import VirtualClock
from orchestrator.driver_lock import driver_lock
from orchestrator.home import Home
from orchestrator.records import StudyRecord, TrialState
from orchestrator.runner import Runner
from orchestrator.spec import StudySpec
from orchestrator.study import Study
from orchestrator.tracking.memory_tracker import MemoryTracker
from workers.config import DataConfig, ModelConfig, TrainConfig
from workers.protocol import FailureReason, Request, TrialRequest

MakeSpec = Callable[..., StudySpec]
TOKENS = 4096
MODEL = ModelConfig(
    vocab_size=4,
    hidden_size=4,
    intermediate_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
)


def curve(request: Request, share: float) -> Mapping[str, float]:
    return {"val/bits_per_byte": 3.0 - share - 0.1 * request.model.num_loops}


def trial(name: str, resume_from: tuple[str, ...] = ()) -> TrialRequest:
    return TrialRequest(
        attempt_id=name,
        model=MODEL,
        data=DataConfig(corpus="phop", seq_len=16),
        train=TrainConfig(tokens=TOKENS, evaluations=4, batch_size=4),
        seed=0,
        data_folder="data",
        folder=name,
        resume_from=resume_from,
    )


def test_an_attempt_takes_as_long_as_its_tokens_do() -> None:
    clock = VirtualClock()
    backend = SimulatedBackend(even_fleet(1, 1, 10.0), curve=curve, clock=clock)
    backend.submit(trial("a"))
    backend.submit(trial("b"))
    assert backend.queued_because() == "1 waiting for one of 1 devices"
    seen = []
    while not (events := backend.poll(10.0)) or not isinstance(events[-1], AttemptEnded):
        seen += [(event.report.tokens, clock()) for event in events if isinstance(event, AttemptReported)]
    assert seen == [(1024, 102.4), (2048, 204.8), (3072, 307.2), (4096, 409.6)]
    assert clock() == 409.6
    assert backend.poll(10_000.0)[0].attempt_id == "b"
    assert clock() == pytest.approx(409.6 + 102.4)


def test_the_fastest_free_device_is_chosen_when_asked() -> None:
    nodes = (
        Node(name="slow", devices=1, tokens_per_second=1.0),
        Node(name="fast", devices=1, tokens_per_second=10.0),
    )
    clock = VirtualClock()
    backend = SimulatedBackend(nodes, curve=curve, clock=clock, place=place_fastest)
    backend.submit(trial("a"))
    backend.submit(trial("b"))
    ended = []
    while len(ended) < 2:
        ended += [(event.attempt_id, clock()) for event in backend.poll(1e6) if isinstance(event, AttemptEnded)]
    assert ended == [("a", 409.6), ("b", 4096.0)]


def test_a_lost_attempt_goes_on_from_its_last_report_and_a_preempted_one_from_the_notice() -> None:
    for mean, kept in (("seconds_between_failures", None), ("seconds_between_preemptions", "all")):
        clock = VirtualClock()
        node = Node(name="n", devices=1, tokens_per_second=10.0, repair_seconds=50.0, **{mean: 300.0})  # type: ignore[arg-type]
        backend = SimulatedBackend([node], curve=curve, clock=clock, seed=5)
        backend.submit(trial("a"))
        events = []
        while not (events and isinstance(events[-1], AttemptEnded)):
            events += backend.poll(1000.0)
        last = events[-1]
        assert isinstance(last, AttemptEnded)
        assert last.outcome.failure is not None
        assert last.outcome.failure.reason is FailureReason.WORKER_LOST
        died = clock()
        reported = 1024 * (len(events) - 1)
        assert reported == 1024 * math.floor(died / 102.4)
        assert backend.slots == 0
        backend.submit(trial("again", resume_from=("a",)))
        first = backend.poll(1e6)
        while not first:
            first = backend.poll(1e6)
        again = [first[0]]
        began = died + 50.0
        if reported:
            assert clock() == pytest.approx(began), "what led to the checkpoint is repeated at once"
        trained = int(died * 10) if kept else reported
        while isinstance(again[-1], AttemptReported) and again[-1].report.tokens < TOKENS:
            again += backend.poll(1e6)
        if isinstance(again[-1], AttemptReported):
            assert clock() == pytest.approx(began + (TOKENS - trained) / 10, abs=0.2)


def test_unreliable_nodes_get_less_work_when_asked() -> None:
    """Two nodes of one device each, one of which dies every few minutes: attempts lost under either policy."""

    def lost(**how: object) -> int:
        nodes = (
            Node(name="bad", devices=1, tokens_per_second=10.0, seconds_between_failures=200.0, repair_seconds=10.0),
            Node(name="good", devices=1, tokens_per_second=10.0),
        )
        clock = VirtualClock()
        backend = SimulatedBackend(nodes, curve=curve, clock=clock, seed=1, **how)  # type: ignore[arg-type]
        count = 0
        for index in range(30):  # one at a time: there is always a choice
            backend.submit(trial(f"t{index}"))
            while not (events := [one for one in backend.poll(1e6) if isinstance(one, AttemptEnded)]):
                pass
            count += events[0].outcome.failure is not None
        return count

    assert lost(place=place_reliable) <= 2 < 10 < lost()


class Watching(SimulatedBackend):
    """Checks after every step that no node runs more than it has devices for."""

    def poll(self, timeout: float) -> list[AttemptReported | AttemptEnded]:
        events = super().poll(timeout)
        for state in self._states:
            running = sum(attempt.state is state for attempt in self._running.values())
            assert running + state.free == state.node.devices
            assert state.up or running == 0
        return events


def driven(home: Home, spec: StudySpec, seed: int) -> tuple[StudyRecord, Watching, float]:
    """A study on eight devices of which nodes die and are preempted every hour."""
    clock = VirtualClock()
    nodes = [
        Node(
            name=f"n{index}",
            devices=2,
            tokens_per_second=1.0 + index,
            seconds_between_failures=3600.0,
            seconds_between_preemptions=3600.0,
            repair_seconds=300.0,
        )
        for index in range(4)
    ]
    backend = Watching(nodes, curve=curve, clock=clock, seed=seed)
    with driver_lock(home, spec.name), Study.open(spec, home) as study:
        record = Runner(
            spec=spec,
            study=study,
            backend=backend,
            tracker=MemoryTracker(spec.name),
            home=home,
            clock=clock,
            wait=lambda seconds: clock.advance_to(clock() + seconds),
        ).run()
    return record, backend, clock()


def test_the_real_driver_runs_a_study_on_it_the_same_way_every_time(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec(
        train={"tokens": TOKENS, "batch_size": 4, "evaluations": 4},
        search={"num_loops": {"choices": [1, 2, 3]}, "lr": {"low": 1e-4, "high": 1e-1, "log": True}},
        objectives=[{"metric": "val/bits_per_byte", "direction": "minimize"}],
        sampler={"name": "random"},
        budget={"configurations": 40},
        retry={"max_attempts": 50},
    )

    def story(folder: str, seed: int) -> tuple[object, ...]:
        record, backend, took = driven(Home(tmp_path / folder), spec, seed)
        assert {trial.state for trial in record.trials} == {TrialState.COMPLETE}, record.message
        trials = [(one.params, one.values, len(one.attempts), one.state) for one in record.trials]
        return trials, backend.utilisation, took

    first, again, other = story("a", 3), story("b", 3), story("c", 4)
    assert first == again
    assert first != other
    assert any(attempts > 1 for _, _, attempts, _ in first[0])  # type: ignore[attr-defined]
