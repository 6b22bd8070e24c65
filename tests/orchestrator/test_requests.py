"""Requests to a driver: carried out once, answered, and never meant for a later one; asked as other processes ask."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator import driver_lock as driver_lock_module
from orchestrator.asking import Asking
from orchestrator.driver_lock import driver_lock
from orchestrator.errors import StudyError
from orchestrator.home import Home
from orchestrator.requests import RequestKind, answer_in, answer_to_plain, new_request, pending, request_to_plain
from orchestrator.spec import StudySpec
from orchestrator.study import Study

MakeSpec = Callable[..., StudySpec]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_pending_requests_come_back_in_the_order_of_asking_until_they_are_answered() -> None:
    later = new_request(RequestKind.BUDGET, "host:1", NOW + timedelta(seconds=1), 40)
    first = new_request(RequestKind.STOP, "host:1", NOW)
    attributes = {"spec": {}, **dict([request_to_plain(later)]), **dict([request_to_plain(first)])}
    assert pending(attributes) == [first, later]
    attributes |= dict([answer_to_plain(first, "stopping", NOW)])
    assert pending(attributes) == [later]
    assert answer_in(attributes, first) == "stopping"
    assert answer_in(attributes, later) is None


def test_two_requests_are_never_the_same() -> None:
    assert new_request(RequestKind.STOP, "host:1", NOW).id != new_request(RequestKind.STOP, "host:1", NOW).id


def test_without_a_driver_nothing_is_written_and_resume_is_offered(make_spec: MakeSpec, home: Home) -> None:
    study = Study.open(make_spec(), home)
    with pytest.raises(StudyError, match="plt resume small"):
        Asking(home, "small").ask(RequestKind.STOP)
    assert study.requests() == []


def test_an_unknown_study_is_refused(home: Home) -> None:
    with pytest.raises(StudyError, match="there is no study"):
        Asking(home, "nothing")


def test_a_driver_answers_whoever_asks(make_spec: MakeSpec, home: Home) -> None:
    study = Study.open(make_spec(), home)
    answers: list[str] = []
    with driver_lock(home, "small"):
        asker = threading.Thread(target=lambda: answers.append(Asking(home, "small").ask(RequestKind.BUDGET, 7)))
        asker.start()
        while not (requests := study.requests()):
            pass
        (request,) = requests
        assert (request.kind, request.configurations) == (RequestKind.BUDGET, 7)
        study.answer(request, "done")
        asker.join(timeout=30)
    assert len(answers) == 1
    assert answers[0].startswith("small: done (")
    assert study.requests() == []


def test_who_is_not_answered_is_told_so_and_the_request_stays(make_spec: MakeSpec, home: Home) -> None:
    study = Study.open(make_spec(), home)
    with driver_lock(home, "small"), pytest.raises(StudyError, match="has not answered yet"):
        Asking(home, "small", wait=lambda _seconds: None, patience=1.0).ask(RequestKind.STOP)
    assert [request.kind for request in study.requests()] == [RequestKind.STOP]


def test_a_driver_that_ends_without_answering_is_noticed(make_spec: MakeSpec, tmp_path: Path) -> None:
    home = Home(tmp_path)
    Study.open(make_spec(), home)
    lock = driver_lock(home, "small")
    lock.__enter__()
    with pytest.raises(StudyError, match="ended before it answered"):
        Asking(home, "small", wait=lambda _seconds: lock.__exit__(None, None, None)).ask(RequestKind.STOP)


def test_a_driver_that_answers_and_ends_at_once_has_answered(
    make_spec: MakeSpec, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the two fall between the asker's own looks."""
    study = Study.open(make_spec(), home)
    lock = driver_lock(home, "small")
    lock.__enter__()
    looks = [0]

    def looked(home: Home, name: str) -> str | None:
        looks[0] += 1
        if looks[0] == 2:  # the first one is before the request
            (request,) = study.requests()
            study.answer(request, "stopping")
            lock.__exit__(None, None, None)
        return driver_lock_module.living_driver(home, name)

    monkeypatch.setattr("orchestrator.asking.living_driver", looked)
    assert Asking(home, "small").ask(RequestKind.STOP).startswith("small: stopping (")
