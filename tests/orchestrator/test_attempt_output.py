"""What `plt logs` prints: the latest attempt's output, or the one asked for, as it comes, without secrets."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.attempt_output import AttemptOutput
from orchestrator.driver_lock import driver_lock
from orchestrator.errors import StudyError
from orchestrator.home import Home
from orchestrator.main import main
from orchestrator.spec import StudySpec
from orchestrator.study import Study

METRICS = {"val/bits_per_byte": 2.5, "val/accuracy": 0.5}


@pytest.fixture
def study(home: Home, make_spec: Callable[..., StudySpec]) -> Iterator[Study]:
    with driver_lock(home, "small"):
        yield Study.open(make_spec(), home)


def write(home: Home, attempt: int, text: bytes, number: int = 0) -> Path:
    path = home.attempt("small", number, attempt) / "output.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(text)
    return path


def test_the_latest_attempt_is_shown_unless_another_is_asked_for(home: Home, study: Study) -> None:
    study.ask()
    for attempt in (1, 2):
        study.start_attempt(0)
        write(home, attempt, f"attempt {attempt}\nlast".encode())
    assert list(AttemptOutput(home, "small", 0).lines()) == ["attempt 2", "last"]
    assert list(AttemptOutput(home, "small", 0, 1).lines()) == ["attempt 1", "last"]
    with pytest.raises(StudyError, match="trial 0 of small has no attempt 3; it has 2, numbered from 1"):
        AttemptOutput(home, "small", 0, 3)
    with pytest.raises(StudyError, match="study small has no trial 5; it has 1"):
        AttemptOutput(home, "small", 5)


def test_secrets_of_addresses_are_left_out(home: Home, study: Study) -> None:
    study.ask()
    study.start_attempt(0)
    write(home, 1, b"to https://me:hunter2@host/x?token=abc&y=1\n\xff not text\r\n\n")
    assert list(AttemptOutput(home, "small", 0).lines()) == [
        "to https://***@host/x?token=***&y=1",
        "\ufffd not text\r",
        "",
    ]


def test_following_goes_over_to_the_next_attempt_and_ends_with_the_trial(home: Home, study: Study) -> None:
    study.ask()
    study.start_attempt(0)
    stages = iter(
        [
            lambda: write(home, 1, "one\ntwo, half: \u00e9".encode()[:-1]),
            lambda: write(home, 1, "\u00e9".encode()[-1:] + b" whole\nthree"),
            lambda: study.start_attempt(0),
            lambda: write(home, 2, b"again\n"),
            lambda: (write(home, 2, b"the end"), study.complete(0, METRICS)),
        ]
    )
    seen: list[object] = []

    def wait(seconds: float) -> None:
        assert seconds > 0
        seen.append("-")
        next(stages)()

    for line in AttemptOutput(home, "small", 0, wait=wait).follow():
        seen.append(line)
    assert seen == ["-", "one", "-", "two, half: \u00e9 whole", "-", "three", "-", "again", "-", "the end"]


def test_following_one_attempt_ends_with_it(home: Home, study: Study) -> None:
    study.ask()
    study.start_attempt(0)
    write(home, 1, b"one\n")
    stages = iter([lambda: study.start_attempt(0)])
    output = AttemptOutput(home, "small", 0, 1, wait=lambda _: next(stages)())
    assert list(output.follow()) == ["one"]


def test_following_ends_when_nobody_drives_the_study(home: Home, make_spec: Callable[..., StudySpec]) -> None:
    with driver_lock(home, "small"):
        study = Study.open(make_spec(), home)
        study.ask()
        study.start_attempt(0)
    write(home, 1, b"one\n")
    assert list(AttemptOutput(home, "small", 0).follow()) == ["one"]


def test_the_command_says_clearly_when_there_is_nothing(
    home: Home, study: Study, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLT_HOME", str(home.root))
    study.ask()
    assert main(["logs", "small/0"]) == 0
    assert capsys.readouterr().err == "plt: trial 0 of small has no attempt yet: it is RUNNING\n"
    study.start_attempt(0)
    assert main(["logs", "small/0"]) == 0
    assert "attempt 1 of trial 0 of small has no output here, if it printed any (" in capsys.readouterr().err
    path = write(home, 1, b"")
    assert main(["logs", "small/0"]) == 0
    assert capsys.readouterr().err == f"plt: attempt 1 of trial 0 of small has printed nothing ({path})\n"
    write(home, 1, b"a line\n")
    assert main(["logs", "small/0", "--attempt", "1"]) == 0
    assert capsys.readouterr().out == "a line\n"
    study.complete(0, METRICS)
    assert main(["logs", "small/0", "--follow"]) == 0
    assert capsys.readouterr().out == "a line\n"
    for wrong in ("small", "small/x", "nothing/0", "small/9", "small/0/"):
        assert main(["logs", wrong]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
