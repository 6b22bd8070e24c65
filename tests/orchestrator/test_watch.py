"""What someone sees who watches a study from outside its driver: every change, and how to go on at the end."""

import io
import json
import re
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.driver_lock import driver_lock
from orchestrator.errors import StudyError
from orchestrator.followed_study import FollowedStudy
from orchestrator.home import Home
from orchestrator.live import LiveFile
from orchestrator.live_state import read_live
from orchestrator.main import main
from orchestrator.records import StudyState
from orchestrator.snapshot import Snapshot
from orchestrator.spec import StudySpec
from orchestrator.studies import read_study
from orchestrator.study import Study
from orchestrator.watch import Watch
from orchestrator.watch_view import WatchView, changes
from workers.protocol import Failure, FailureReason, MetricReport

MakeSpec = Callable[..., StudySpec]
METRICS = {"val/bits_per_byte": 2.5, "val/accuracy": 0.5}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Driver:
    """Drives a small study one stage at a time: every `wait` of the watcher is the next stage."""

    def __init__(self, home: Home, spec: StudySpec) -> None:
        self.home, self.name, self._now = home, spec.name, NOON
        self._lock = driver_lock(home, spec.name)
        self._lock.__enter__()
        self.study = Study.open(spec, home, clock=self.now)
        self.live = LiveFile(home.live(spec.name), clock=lambda: 0.0)
        self._stages = self._run()
        self.wait(0)

    def now(self) -> datetime:
        return self._now

    def wait(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        next(self._stages)

    def _run(self) -> Iterator[None]:
        self.study.set_state(StudyState.RUNNING, "")
        yield
        first = self._start()
        yield
        report = MetricReport(step=5, tokens=50, metrics={"train/loss": 1.25, "odd": float("nan")}, seconds=1.0)
        self.live.reported(first, report)
        self.live.write(now=True)
        yield
        self.home.live(self.name).write_text('{"updated": "20', encoding="utf-8")
        yield
        self.study.complete(first, METRICS)
        self.live.ended(first)
        second = self._start()
        yield
        lost = Failure(reason=FailureReason.DIVERGED, message="train/loss is nan [sic]")
        self.study.fail(second, lost)
        self.live.ended(second)
        self.live.queued("no GPU is free")
        self.live.write(now=True)
        yield
        self.study.set_state(StudyState.INTERRUPTED, "stopped")
        self._lock.__exit__(None, None, None)
        yield

    def _start(self) -> int:
        trial = self.study.ask()
        assert trial is not None
        self.live.started(trial.number, self.study.start_attempt(trial.number), steps=10)
        self.live.write(now=True)
        return trial.number


@pytest.fixture
def driver(home: Home, make_spec: MakeSpec) -> Driver:
    return Driver(home, make_spec(budget={"configurations": 3}, sampler={"name": "grid"}))


def watch(driver: Driver) -> Iterator[Snapshot]:
    return Watch(driver.home, driver.name, clock=driver.now, wait=driver.wait).snapshots()


def shown(driver: Driver, *, terminal: bool) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120, _environ={})
    WatchView(console).show(watch(driver))
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.getvalue())


def test_snapshots_say_what_the_journal_and_the_live_file_say(driver: Driver) -> None:
    snapshots = list(watch(driver))
    assert [one.driven for one in snapshots] == [True] * 6 + [False]
    assert [one.seconds for one in snapshots] == [0, 0, 1, 2, 3, 4, 3]
    running = [[(trial.number, live and live.step) for trial, live in one.running()] for one in snapshots]
    assert running == [[], [(0, 0)], [(0, 5)], [(0, 5)], [(1, 0)], [], []]
    assert [one.queued_because for one in snapshots] == [None] * 5 + ["no GPU is free", None]
    for one in snapshots:
        json.loads(json.dumps(one.to_plain(), allow_nan=False))
    plain = snapshots[2].to_plain()
    assert (plain["state"], plain["time"], plain["seconds"]) == ("RUNNING", "2026-01-01T12:00:02+00:00", 1)
    assert plain["running"]["0"]["metrics"] == {"train/loss": 1.25, "odd": None}
    assert snapshots[-1].study == read_study(driver.home, driver.name)


def test_without_a_terminal_every_change_is_a_line(driver: Driver) -> None:
    lines = shown(driver, terminal=False).splitlines()
    assert [line for line in lines if line.startswith(("small: ", "trial ", "waiting: ", "nobody "))] == [
        "small: RUNNING",
        "trial 0 (seed 0) num_loops=1: running",
        "trial 0 done: val/bits_per_byte 2.5000 bits/byte, val/accuracy 0.500",
        "trial 1 (seed 0) num_loops=2 window=8 gate_mode=learned: running",
        "waiting: no GPU is free",
        "trial 1 failed, diverged: train/loss is nan [sic]",
        "small: INTERRUPTED, stopped",
        "nobody drives small now; to continue: plt resume small",
    ]


def test_whoever_begins_late_is_told_what_is_going_on_only(driver: Driver) -> None:
    for _ in range(4):
        driver.wait(1)
    late = next(watch(driver))
    assert list(changes(None, late)) == [
        "small: RUNNING",
        "trial 1 (seed 0) num_loops=2 window=8 gate_mode=learned: running",
    ]
    driver.study.start_attempt(1)
    again = next(watch(driver))
    assert list(changes(late, again)) == ["trial 1 (seed 0, attempt 2) num_loops=2 window=8 gate_mode=learned: running"]
    assert list(changes(again, again)) == []


def test_on_a_terminal_there_are_bars_counts_and_the_front(driver: Driver) -> None:
    output = shown(driver, terminal=True)
    for words in (
        "small: RUNNING (driver ",
        "1 of 3 configurations; 1 RUNNING",
        "trial 0 (seed 0) num_loops=1",
        " 50 % loss 1.250",
        "1 COMPLETE, 1 RUNNING",
        "best so far",
        "1 x diverged, e.g. trial 1: train/loss is nan [sic]",
        "3 s so far",
        "waiting: no GPU is free",
        "to continue: plt resume small",
    ):
        assert words in output


def test_an_older_attempt_in_the_live_file_is_not_the_running_one(driver: Driver) -> None:
    driver.wait(1)
    driver.study.start_attempt(0)
    snapshot = next(watch(driver))
    assert [(trial.number, live) for trial, live in snapshot.running()] == [(0, None)]
    assert snapshot.to_plain()["running"] == {"0": {}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        "7",
        '{"trials": 3, "queued_because": null}',
        '{"trials": {"x": {}}, "queued_because": null}',
        '{"trials": {"1": {"attempt": 1}}, "queued_because": null}',
        '{"trials": {"1": []}, "queued_because": null}',
    ],
)
def test_a_live_file_of_any_content_is_tolerated(tmp_path: Path, text: str) -> None:
    (tmp_path / "live.json").write_text(text, encoding="utf-8")
    assert read_live(tmp_path / "live.json") is None
    assert read_live(tmp_path / "none.json") is None


def test_a_followed_study_reads_what_a_fresh_reader_does(driver: Driver) -> None:
    followed = FollowedStudy(driver.home, driver.name)
    for _ in range(6):
        assert followed.read() == read_study(driver.home, driver.name)
        driver.wait(1)
    driver.home.journal(driver.name).unlink()
    with pytest.raises(StudyError, match="there is no study 'small'"):
        followed.read()


def test_the_command_prints_a_study_that_nobody_drives_once(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLT_HOME", str(driver.home.root))
    for _ in range(6):
        driver.wait(1)
    assert main(["watch", "small"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("small: INTERRUPTED") == 1
    assert "plt resume small" in printed
    assert main(["watch", "small", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["trials"]["FAIL"] for line in lines] == [1]
    driver.study.set_state(StudyState.COMPLETE, "every point tried")
    assert main(["watch", "small"]) == 0
    assert "resume" not in capsys.readouterr().out
    assert main(["watch", "smal"]) == 2
    assert "did you mean small?" in capsys.readouterr().err


def test_ctrl_c_ends_the_watching_and_not_the_study(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLT_HOME", str(driver.home.root))
    old = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        assert main(["watch", "small"]) == 0
    finally:
        signal.signal(signal.SIGALRM, old)
    captured = capsys.readouterr()
    assert captured.out == "small: RUNNING\n"
    assert "interrupted" not in captured.err
    assert read_study(driver.home, "small").driver is not None


def test_a_journal_that_cannot_be_read_is_said_every_time_and_read_once_it_is_mended(driver: Driver) -> None:
    journal = driver.home.journal(driver.name)
    whole = journal.read_text()
    journal.write_text("this is no journal\n")
    followed = FollowedStudy(driver.home, driver.name)
    for _ in range(2):
        with pytest.raises(StudyError, match="damaged"):
            followed.read()
    journal.write_text(whole)
    record = followed.read()
    assert record.name == driver.name
    assert followed.read() is record
    journal.write_text(whole + "this is no journal\n{}\n")
    for _ in range(2):
        with pytest.raises(StudyError, match="damaged"):
            followed.read()
    journal.write_text(whole)
    assert followed.read() == record
