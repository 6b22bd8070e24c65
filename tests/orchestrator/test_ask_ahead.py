"""Proposals that wait for devices: distinct, within the budget, never blocking, and gone without a trace."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from orchestrator.ask_ahead import AskAhead, Wait
from orchestrator.producer import Producer
from orchestrator.proposer import Evaluation, Proposal, Proposer
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec

MakeSpec = Callable[..., StudySpec]
CONTINUOUS = {"num_loops": {"choices": [1, 2, 3]}, "lr": {"low": 1e-4, "high": 1e-1, "log": True}}
PATIENCE = 60.0
"""Seconds after which a test gives up."""


def new_proposer(spec: StudySpec) -> Proposer:
    return Proposer(spec, SearchSpace(spec))


def ended(evaluation: Evaluation) -> Evaluation:
    return replace(evaluation, running=False, values=(evaluation.params.get("lr", 0.5), 0.5))


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive()


class Scripted:
    """Proposes a given list, one after the other, each when it is allowed to."""

    sampler = "scripted"

    def __init__(self, proposals: Sequence[Proposal | Exception | None]) -> None:
        self._proposals = list(proposals)
        self._allowed = threading.Semaphore(0)
        self.asked_with: list[list[str]] = []
        """Fingerprints that were known, by ask."""

    def allow(self, number: int = 1) -> None:
        self._allowed.release(number)

    def propose(self, known: Sequence[Evaluation]) -> Proposal | None:
        self.asked_with.append([one.fingerprint for one in known])
        self._allowed.acquire()
        proposal = self._proposals.pop(0) if self._proposals else None
        if isinstance(proposal, Exception):
            raise proposal
        return proposal

    def close(self) -> None:
        self.allow(1000)


def at_work(scripted: Scripted, depth: int, **settings: Any) -> Producer:
    """At work, with nothing known."""
    producer = Producer(scripted, depth, **settings)
    producer.update([])
    return producer


@pytest.fixture
def points(make_spec: MakeSpec) -> list[Proposal]:
    """Nine."""
    found = SearchSpace(make_spec()).configurations
    assert found is not None
    return [Proposal(configuration=one, sampler="scripted") for one in found]


def name(proposal: Proposal | None) -> str:
    assert proposal is not None
    return proposal.configuration.fingerprint


@pytest.mark.parametrize(("sampler", "depth"), [("tpe", 0), ("nsga2", 0), ("random", 4), ("grid", 4)])
def test_without_a_queue_it_is_the_proposer(make_spec: MakeSpec, sampler: str, depth: int) -> None:
    """Depth 0, and samplers that are instant: repeatable, and no thread."""
    spec = make_spec(sampler={"name": sampler, "seed": 3})
    plain, known = new_proposer(spec), list[Evaluation]()
    threads = threading.active_count()
    with closing(AskAhead(new_proposer(spec), depth)) as ahead:
        for _ in range(9):
            ahead.update(known)
            proposal = ahead.take()
            assert proposal == plain.propose(known)
            assert proposal is not None
            known.append(ended(proposal.running()))
        assert threading.active_count() == threads
        ahead.update(known)
        assert ahead.take() is None


@pytest.mark.parametrize("depth", [0, 3])
def test_taken_ones_count_before_they_are_known(make_spec: MakeSpec, depth: int) -> None:
    with closing(AskAhead(new_proposer(make_spec(sampler={"name": "tpe"})), depth)) as ahead:
        ahead.update([])
        taken = [ahead.take() for _ in range(9)]
        assert len({name(one) for one in taken}) == 9
        assert ahead.take() is None


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "gp"])
@pytest.mark.parametrize("seed", range(2))
def test_a_finite_space_is_taken_once_whatever_the_order_of_results(
    make_spec: MakeSpec, sampler: str, seed: int
) -> None:
    """Three at a time; results arrive in any order while proposals are under way."""
    random, known = Random(seed), dict[str, Evaluation]()
    with closing(AskAhead(new_proposer(make_spec(sampler={"name": sampler, "seed": seed})), 3)) as ahead:
        while True:
            ahead.update(list(known.values()))
            proposal = ahead.take()
            if proposal is None:
                break
            assert name(proposal) not in known
            known[name(proposal)] = proposal.running()
            running = [one for one in known.values() if one.running]
            if len(running) == 3:
                one = random.choice(running)
                known[one.fingerprint] = ended(one)
    assert len(known) == 9


def test_nothing_is_made_before_something_was_said_of_the_study(points: list[Proposal]) -> None:
    """A study that is continued: its first configurations are no news."""
    scripted = Scripted(points)
    scripted.allow(9)
    with closing(Producer(scripted, 1, budget=9)) as producer:
        assert producer.take(0.05) is None
        producer.update([points[0].running()])
        assert name(producer.take(PATIENCE)) == name(points[1])
    assert scripted.asked_with[0] == [name(points[0])]


def test_queued_and_taken_ones_count_as_running_for_the_next(points: list[Proposal]) -> None:
    scripted = Scripted(points)
    with closing(at_work(scripted, 3, budget=9)) as producer:
        scripted.allow(3)
        wait_for(lambda: len(producer.queued()) == 3)
        producer.take(0.0)
        wait_for(lambda: len(scripted.asked_with) == 4)
        producer.update([points[8].running()])
    names = [name(one) for one in points]
    assert scripted.asked_with == [names[:number] for number in range(4)]


def test_a_queued_one_that_became_known_is_dropped(points: list[Proposal]) -> None:
    scripted = Scripted(points)
    with closing(at_work(scripted, 2, budget=9)) as producer:
        scripted.allow(2)
        wait_for(lambda: len(producer.queued()) == 2)
        producer.update([points[0].running()])
        assert name(producer.take(PATIENCE)) == name(points[1])


def test_one_that_became_known_while_it_was_made_is_dropped(points: list[Proposal]) -> None:
    scripted = Scripted(points)
    with closing(at_work(scripted, 1, budget=9)) as producer:
        wait_for(lambda: scripted.asked_with == [[]])
        producer.update([points[0].running()])
        scripted.allow(2)
        assert name(producer.take(PATIENCE)) == name(points[1])


def test_outdated_ones_are_replaced(points: list[Proposal]) -> None:
    """Made before there was a result, and there are two now; the ask that replaces it does not count it as running."""
    scripted = Scripted(points)
    with closing(at_work(scripted, 1, budget=9)) as producer:
        scripted.allow()
        wait_for(lambda: len(producer.queued()) == 1)
        results = [ended(points[7].running()), ended(points[8].running())]
        producer.update(results)
        scripted.allow()
        wait_for(lambda: [one.fingerprint for one in producer.queued()] == [name(points[1])])
        assert scripted.asked_with[1] == [one.fingerprint for one in results]
        producer.update([*results, points[6].running()])
        assert name(producer.take(0.0)) == name(points[1])


def test_no_more_than_the_budget_has_room_for(points: list[Proposal]) -> None:
    scripted = Scripted(points)
    scripted.allow(9)
    with closing(at_work(scripted, 5, budget=3)) as producer:
        assert len({name(producer.take(PATIENCE)) for _ in range(3)}) == 3
        assert producer.take(0.1) is None
    assert len(scripted.asked_with) == 3


def test_nothing_is_asked_again_until_something_else_is_known(points: list[Proposal]) -> None:
    scripted = Scripted([points[0], None, points[1]])
    scripted.allow(9)
    with closing(at_work(scripted, 3, budget=9)) as producer:
        wait_for(lambda: len(scripted.asked_with) == 2 and len(producer.queued()) == 1)
        assert not producer.exhausted()  # one is left to take
        taken = producer.take(0.0)
        assert taken is not None
        producer.update([ended(taken.running())])
        wait_for(producer.exhausted)
        assert producer.take(PATIENCE) is None
        assert len(scripted.asked_with) == 2
        producer.add(points[5].running())
        assert name(producer.take(PATIENCE)) == name(points[1])


@pytest.mark.parametrize("after", [0, 2])
def test_an_error_in_the_background_is_raised_by_take(points: list[Proposal], after: int) -> None:
    scripted = Scripted([*points[:after], ZeroDivisionError("the sampler's own")])
    scripted.allow(9)
    with closing(at_work(scripted, 5, budget=9)) as producer:
        wait_for(lambda: len(scripted.asked_with) == after + 1)
        with pytest.raises(ZeroDivisionError, match="sampler's own"):
            [producer.take(PATIENCE) for _ in range(after + 1)]


def test_take_does_not_wait_for_an_ask_that_takes_longer(points: list[Proposal]) -> None:
    with closing(at_work(Scripted(points), 1, budget=9, takes=100.0)) as producer:
        began = time.monotonic()
        assert producer.take(PATIENCE) is None
        assert time.monotonic() - began < PATIENCE / 2


def test_close_does_not_wait_for_a_slow_ask(points: list[Proposal]) -> None:
    scripted = Scripted(points)
    scripted.close = lambda: None  # type: ignore[method-assign]  # the ask goes on
    producer = at_work(scripted, 1, budget=9)
    wait_for(lambda: len(scripted.asked_with) == 1)
    producer.close(wait=0.01)
    scripted.allow()
    assert producer.queued() == []


def test_something_quick_stands_in_for_gp(make_spec: MakeSpec) -> None:
    """Its process cannot have started yet, and two devices are free."""
    spec = make_spec(sampler={"name": "gp"}, search=CONTINUOUS)
    known = list[Evaluation]()
    for _ in range(15):
        proposal = new_proposer(spec).guess(known)
        assert proposal is not None
        known.append(ended(proposal.running()))
    with closing(AskAhead(new_proposer(spec), 2)) as ahead:
        ahead.update(known)
        proposals = [ahead.take() for _ in range(2)]
    assert {one.sampler for one in proposals if one is not None} <= {"tpe", "random"}
    assert len({name(one) for one in proposals} | {one.fingerprint for one in known}) == 17


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("devices", "trial"), [(1, 2.0), (8, 2.0), (8, 600.0), (64, 2.0)])
def test_all_waiting_together_is_a_small_share_of_the_devices_time(devices: int, trial: float) -> None:
    """A sampler that is never ready in time: a study of many trials waits at most 0.3 s and 0.2 % of its time."""
    clock = Clock()
    wait = Wait(devices, clock)
    waited, longest, trials = 0.0, 0.0, 40 * devices

    def never_ready(seconds: float) -> None:
        nonlocal waited, longest
        waited, longest = waited + seconds, max(longest, seconds)
        clock.now += seconds

    for _ in range(trials):
        wait.at_most(never_ready)
        clock.now += trial / devices
    assert 0.3 <= waited <= 0.3 + 0.002 * devices * (clock.now - 100.0)
    assert waited >= 0.001 * trials * min(trial, 2.0)
    assert longest <= 1.0


def wait_for(condition: Callable[[], Any]) -> None:
    """Until it holds; the producer's thread is at work."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)
