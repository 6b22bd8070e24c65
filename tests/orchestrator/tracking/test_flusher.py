"""Order, batching, retries, refusals and what is kept on disk, against services that fail in known ways."""

import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from orchestrator.errors import ServiceError
from orchestrator.tracking.delivery import DeliveryError, Moved, Verdict
from orchestrator.tracking.entry import Entry, Reported, RunUpdate
from orchestrator.tracking.flusher import MOST_ENTRIES, Flusher
from orchestrator.tracking.spool import Spool
from orchestrator.tracking.tracked_run import RunStatus
from workers.protocol import MetricReport


def report(number: int, step: int) -> Reported:
    return Reported(
        number=number, time=step, report=MetricReport(step=step, tokens=step, metrics={"loss": 1 / step}, seconds=0.5)
    )


def start(number: int) -> RunUpdate:
    return RunUpdate(number=number, time=0, status=RunStatus.RUNNING, name=f"trial-{number}", started=0)


def down(reason: str) -> DeliveryError:
    return DeliveryError(Verdict.RETRY, reason)


def refusal(reason: str) -> DeliveryError:
    return DeliveryError(Verdict.REFUSED, reason)


class Service:
    """Keeps what it was given; while `gate` is closed a delivery waits, and while `error` is set it fails."""

    def __init__(self) -> None:
        self.log: list[Entry | str] = []
        self.batches: list[int] = []
        self.delivered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.error: Exception | None = None
        self.tries = 0
        self.dies_after: int | None = None
        """Fail with the connection after taking so many entries of a batch."""

    def deliver(self, entries: Sequence[Entry], _moved: Moved) -> None:
        self.enter()
        for count, entry in enumerate(entries):
            if count == self.dies_after:
                raise down("connection reset")
            if isinstance(entry, Reported) and entry.report.step == 13:
                raise refusal("13 is refused")
            self.log.append(entry)
        self.batches.append(len(entries))
        self.delivered.release()

    def enter(self) -> None:
        self.entered.set()
        assert self.gate.wait(10)
        self.tries += 1
        if self.error is not None:
            raise self.error

    def act(self, name: str, _moved: Moved) -> None:
        self.enter()
        self.log.append(name)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def open_flusher(tmp_path: Path, service: Service) -> Iterator[Callable[..., Flusher]]:
    """A flusher of one file, that hurries; each call is another driver's."""
    made: list[Flusher] = []

    def make(patience: float = 5.0, **changes: object) -> Flusher:
        options = {"gather": 0.0, "patience": patience, **changes}
        made.append(Flusher(Spool(tmp_path / "spool"), service.deliver, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    service.error = None
    service.gate.set()


def test_everything_arrives_in_order_and_what_waits_travels_together(
    service: Service, open_flusher: Callable[..., Flusher]
) -> None:
    flusher = open_flusher()
    service.gate.clear()
    said = [start(0), report(0, 1), report(1, 1), report(0, 2), start(2)]
    for entry in said:
        flusher.say(entry)
    flusher.act("reconcile", partial(service.act, "reconcile"))
    flusher.say(report(2, 1))
    service.gate.set()
    flusher.close()

    assert service.log == [*said, "reconcile", report(2, 1)]
    assert len(service.batches) <= 3


def test_the_caller_never_waits_for_the_service_and_the_service_gets_batches(
    service: Service, open_flusher: Callable[..., Flusher]
) -> None:
    service.gate.clear()
    flusher = open_flusher()
    flusher.say(report(0, 1))
    assert service.entered.wait(5)
    for step in range(20, 2020):
        flusher.say(report(0, step))
    assert service.log == []
    service.gate.set()
    flusher.close()

    assert [entry.report.step for entry in service.log if isinstance(entry, Reported)] == [1, *range(20, 2020)]
    assert max(service.batches) <= MOST_ENTRIES
    assert len(service.batches) <= 12


def test_only_a_batch_that_is_not_full_waits_for_more(service: Service, open_flusher: Callable[..., Flusher]) -> None:
    service.gate.clear()
    flusher = open_flusher(gather=3600.0)
    flusher.say(report(0, 1))
    assert service.entered.wait(5)
    for step in range(20, 20 + 2 * MOST_ENTRIES + 1):
        flusher.say(report(0, step))
    service.gate.set()
    for _ in range(3):
        assert service.delivered.acquire(timeout=10)
    assert service.batches == [1, MOST_ENTRIES, MOST_ENTRIES]
    flusher.close()

    assert service.batches == [1, MOST_ENTRIES, MOST_ENTRIES, 1]


def test_an_outage_of_any_length_takes_no_memory_and_loses_nothing(
    service: Service, open_flusher: Callable[..., Flusher]
) -> None:
    service.error = down("connection refused")
    flusher = open_flusher(patience=0.3)
    flusher.say(report(0, 1))
    assert service.entered.wait(5)
    tracemalloc.start()
    for step in range(20, 20_020):
        flusher.say(report(step % 16, step))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 1_000_000
    with pytest.raises(ServiceError, match="connection refused; 20001 reports and changes of state wait"):
        flusher.close()

    service.error = None
    open_flusher().close()
    assert [entry.report.step for entry in service.log if isinstance(entry, Reported)] == [1, *range(20, 20_020)]


def test_a_service_that_comes_back_gets_everything_once(service: Service, open_flusher: Callable[..., Flusher]) -> None:
    service.error = down("connection refused")
    flusher = open_flusher()
    flusher.say(start(0))
    assert service.entered.wait(5)
    flusher.say(report(0, 1))
    assert flusher.problem() is not None
    service.error = None
    flusher.drain()
    service.error = down("again")
    flusher.say(report(0, 2))
    flusher.say(report(0, 3))
    service.error = None
    flusher.close()

    assert service.log == [start(0), report(0, 1), report(0, 2), report(0, 3)]
    assert flusher.problem() is None


def test_what_was_taken_before_the_connection_broke_is_given_again(
    service: Service, open_flusher: Callable[..., Flusher]
) -> None:
    """At least once, never less: the batch counts as delivered only when all of it was."""
    service.gate.clear()
    service.dies_after = 2
    flusher = open_flusher(patience=0.3)
    flusher.say(start(0))
    assert service.entered.wait(5)
    for step in (1, 2, 3):
        flusher.say(report(0, step))
    service.gate.set()
    with pytest.raises(ServiceError, match="connection reset"):
        flusher.close()
    service.dies_after = None
    service.log.clear()
    open_flusher().close()
    assert service.log == [report(0, step) for step in (1, 2, 3)]


def test_a_driver_killed_after_the_delivery_delivers_again(
    tmp_path: Path, service: Service, open_flusher: Callable[..., Flusher]
) -> None:
    """The file as it was before the cursor was written, as after kill -9 between the two."""
    service.gate.clear()
    flusher = open_flusher()
    for step in (1, 2):
        flusher.say(report(0, step))
    assert service.entered.wait(5)
    before = (tmp_path / "spool").read_bytes()
    service.gate.set()
    flusher.drain()
    assert service.log == [report(0, 1), report(0, 2)]
    (tmp_path / "spool").write_bytes(before)
    open_flusher().close()
    assert service.log == [report(0, 1), report(0, 2)] * 2


def test_a_service_that_stays_down_is_named_within_bounded_time(
    service: Service, open_flusher: Callable[..., Flusher]
) -> None:
    service.error = down("connection refused")
    flusher = open_flusher(patience=0.6)
    flusher.say(report(7, 1))
    began = time.monotonic()
    with pytest.raises(ServiceError, match=r"^not everything was tracked: connection refused; 1 reports"):
        flusher.close()
    assert 0.5 < time.monotonic() - began < 2.0
    assert service.tries > 1


def test_nobody_waits_for_what_only_a_person_can_mend(service: Service, open_flusher: Callable[..., Flusher]) -> None:
    service.error = DeliveryError(Verdict.WAIT, "the experiment was deleted")
    flusher = open_flusher(patience=60.0)
    flusher.say(report(7, 1))
    began = time.monotonic()
    with pytest.raises(ServiceError, match="the experiment was deleted; 1 reports"):
        flusher.close()
    assert time.monotonic() - began < 5.0


def test_a_slow_service_gets_the_time_it_needs(service: Service, open_flusher: Callable[..., Flusher]) -> None:
    flusher = open_flusher(patience=0.4)

    def slow(moved: Moved) -> None:
        for _ in range(8):
            threading.Event().wait(0.1)
            moved()
        service.log.append("done")

    flusher.act("something long", slow)
    flusher.close()
    assert service.log == ["done"]


def test_a_refused_entry_is_named_and_holds_nothing_up(service: Service, open_flusher: Callable[..., Flusher]) -> None:
    service.gate.clear()
    flusher = open_flusher()
    flusher.say(report(0, 1))
    assert service.entered.wait(5)
    for step in (2, 13, 14):
        flusher.say(report(3, step))
    service.gate.set()
    with pytest.raises(ServiceError, match="metrics of trial 3: 13 is refused"):
        flusher.close()

    steps = [entry.report.step for entry in service.log if isinstance(entry, Reported)]
    assert sorted(set(steps)) == [1, 2, 14]


def test_a_refused_action_is_named_and_holds_nothing_up(service: Service, open_flusher: Callable[..., Flusher]) -> None:
    flusher = open_flusher()

    def refused(_moved: Moved) -> None:
        raise refusal("no")

    flusher.act("bringing it up to date", refused)
    flusher.say(report(0, 1))
    with pytest.raises(ServiceError, match="bringing it up to date: no"):
        flusher.close()
    assert service.log == [report(0, 1)]


def test_a_damaged_line_is_named_and_left_out(
    tmp_path: Path, service: Service, open_flusher: Callable[..., Flusher]
) -> None:
    spool = Spool(tmp_path / "spool")
    spool.append(b'{"run":3,"status":"BLUE"}\n')
    spool.append(b"\0\0\0\n")
    flusher = open_flusher()
    flusher.say(report(0, 1))
    with pytest.raises(ServiceError, match="a damaged line was left out"):
        flusher.close()
    assert service.log == [report(0, 1)]


def test_a_disk_that_takes_nothing_is_counted_and_said(tmp_path: Path, service: Service) -> None:
    class Full(Spool):
        full = False

        def append(self, line: bytes) -> None:
            if self.full:
                raise OSError(28, "No space left on device")
            super().append(line)

    spool = Full(tmp_path / "full")
    flusher = Flusher(spool, service.deliver, patience=5.0)
    flusher.say(report(0, 1))
    spool.full = True
    flusher.say(report(0, 2))
    flusher.say(report(0, 3))
    flusher.say(start(1))
    spool.full = False
    flusher.say(report(0, 4))
    assert flusher.doubtful
    said = "2 reports could not be kept for MLflow .*; 1 changes of state could not be kept for MLflow .No space left"
    with pytest.raises(ServiceError, match=said):
        flusher.close()
    assert service.log == [report(0, 1), report(0, 4)]
