"""Order, batching, retries, refusals and the bound of the queue, against services that fail in known ways."""

import threading
import time
from functools import partial

import pytest

from orchestrator.errors import ServiceError
from orchestrator.tracking.flusher import Flusher, MetricPoint
from orchestrator.tracking.tracked_run import Point


def points(*steps: int) -> list[MetricPoint]:
    return [("loss", Point(step, 1.0 / step, float(step))) for step in steps]


def is_transient(error: Exception) -> bool:
    return isinstance(error, ConnectionError)


class Service:
    """Keeps what it was sent; while `gate` is closed a request waits, and while `down` it fails."""

    def __init__(self) -> None:
        self.log: list[object] = []
        self.batches: list[tuple[int, list[int]]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.down = False
        self.latency = 0.0
        self.tries = 0

    def send(self, number: int, batch: list[MetricPoint]) -> None:
        sent = (number, [point.step for _, point in batch])
        self.say(sent)
        self.batches.append(sent)

    def say(self, what: object) -> None:
        self.entered.set()
        self.gate.wait(10)
        threading.Event().wait(self.latency)
        self.tries += 1
        if self.down:
            raise ConnectionError("connection refused")
        self.log.append(what)


def test_everything_arrives_in_order_and_waiting_metrics_travel_together() -> None:
    service = Service()
    flusher = Flusher(service.send, is_transient)
    service.gate.clear()
    flusher.write("start", lambda: service.say("start"))
    for step in (1, 2, 3):
        flusher.metrics(0, points(step))
        flusher.metrics(1, points(step))
    flusher.write("end", lambda: service.say("end"))
    flusher.metrics(2, points(9))
    service.gate.set()
    flusher.close()

    assert service.log == ["start", (0, [1, 2, 3]), (1, [1, 2, 3]), "end", (2, [9])]


def test_the_caller_never_waits_for_the_service() -> None:
    service = Service()
    service.gate.clear()
    flusher = Flusher(service.send, is_transient)
    flusher.metrics(0, points(1))
    assert service.entered.wait(5)
    for step in range(2, 2002):
        flusher.metrics(0, points(step))
    assert service.log == []
    service.gate.set()
    flusher.close()

    assert sum(len(steps) for _, steps in service.batches) == 2001
    assert len(service.batches) <= 4


def test_a_service_that_comes_back_gets_everything() -> None:
    service = Service()
    service.down = True
    flusher = Flusher(service.send, is_transient)
    flusher.write("start of trial 0", lambda: service.say("start"))
    assert service.entered.wait(5)
    flusher.metrics(0, points(1))
    service.down = False
    flusher.close()

    assert service.log == ["start", (0, [1])]
    assert flusher.problem() is None


def test_a_service_that_stays_down_is_named_within_bounded_time() -> None:
    service = Service()
    service.down = True
    flusher = Flusher(service.send, is_transient, patience=0.6)
    flusher.write("end of trial 7", lambda: service.say("end"))
    flusher.metrics(8, points(1, 2))
    began = time.monotonic()
    with pytest.raises(ServiceError, match=r"end of trial 7, trial 8 still to be written: .*connection refused$"):
        flusher.close()

    assert time.monotonic() - began < 2.0
    assert service.tries > 1
    assert service.log == []


def test_a_slow_service_gets_the_time_it_needs() -> None:
    service = Service()
    service.latency = 0.1
    flusher = Flusher(service.send, is_transient, patience=0.4)
    for index in range(8):
        flusher.write("write", partial(service.say, index))
    flusher.close()

    assert service.log == list(range(8))


def test_a_refused_write_is_named_and_holds_nothing_up() -> None:
    service = Service()

    def refused() -> None:
        raise ValueError("parameter lr was 0.1 before")

    flusher = Flusher(service.send, is_transient)
    flusher.write("start of trial 0", refused)
    flusher.metrics(0, points(1))
    with pytest.raises(ServiceError, match=r"start of trial 0: ValueError: parameter lr was 0.1 before"):
        flusher.close()

    assert service.log == [(0, [1])]


def test_a_full_queue_drops_metrics_counts_them_and_keeps_state() -> None:
    service = Service()
    service.gate.clear()
    flusher = Flusher(service.send, is_transient, capacity=3)
    flusher.metrics(4, points(1, 2))
    flusher.metrics(4, points(3, 4))
    flusher.write("end of trial 4", lambda: service.say("end"))
    service.gate.set()
    with pytest.raises(ServiceError, match="2 metric values of trial 4 were dropped"):
        flusher.close()

    assert service.log == [(4, [1, 2]), "end"]
