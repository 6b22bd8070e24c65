"""What others ask of a running driver, and what befalls its attempts: each comes out as the failure table says."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.backends.backend import AttemptReported, Backend, Event
from orchestrator.backends.local_backend import LocalBackend
from orchestrator.home import Home
from orchestrator.journal import open_journal
from orchestrator.listener import Silence
from orchestrator.process_name import process_name
from orchestrator.records import StudyRecord, StudyState, TrialRecord, TrialState
from orchestrator.requests import RequestKind, new_request, request_to_plain
from orchestrator.runner import Runner
from orchestrator.spec import StudySpec
from orchestrator.studies import read_study
from orchestrator.study import Study
from orchestrator.tracking.memory_tracker import MemoryTracker
from orchestrator.tracking.tracked_run import RunStatus
from workers.protocol import (
    Execute,
    Failure,
    FailureReason,
    MetricReport,
    Request,
    ShouldStop,
    TrialOutcome,
    TrialRequest,
)

NAME = "asked"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def spec(**changes: Any) -> StudySpec:
    plain: dict[str, Any] = {
        "name": NAME,
        "model": {"variant": "plt", "d_model": 16, "num_layers": 1, "num_heads": 2},
        "data": {"corpus": "stdlib", "seq_len": 64},
        "train": {"tokens": 1000, "batch_size": 2},
        "search": {"num_loops": {"choices": [1, 2, 3, 4]}},
        "objectives": [{"metric": "val/bits_per_byte", "direction": "minimize"}],
        "sampler": {"name": "grid"},
        "budget": {"configurations": 4, "max_failure_rate": 1.0},
    }
    return StudySpec.from_plain({**plain, **changes})


class Work:
    """Answers every trial with its loop count; `meanwhile` is called once per trial, with how many there were."""

    def __init__(self, meanwhile: Callable[[int], object] = lambda _count: None, reports: int = 1) -> None:
        self.requests: list[TrialRequest] = []
        self._meanwhile, self._reports = meanwhile, reports

    def __call__(self, request: Request, should_stop: ShouldStop) -> Iterator[MetricReport | TrialOutcome]:
        del should_stop
        assert isinstance(request, TrialRequest)
        self.requests.append(request)
        came = self._meanwhile(len(self.requests))
        for step in range(1, self._reports + 1):
            yield MetricReport(step=step, tokens=step * 10, metrics={"train/loss": 1.0}, seconds=0.1)
        if isinstance(came, Failure):
            yield TrialOutcome(failure=came)
        yield TrialOutcome(metrics={"val/bits_per_byte": float(request.model.num_loops)})


class Heard(Silence):
    """Keeps the notices."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


def ask(home: Home, kind: RequestKind, configurations: int | None = None, *, to: str | None = None) -> None:
    """As another process would."""
    storage = open_journal(home, NAME)
    request = new_request(kind, to or process_name(), datetime.now(UTC), configurations)
    storage.set_study_user_attr(storage.get_study_id_from_name(NAME), *request_to_plain(request))


class Driven:
    """One run of a study."""

    def __init__(
        self,
        home: Home,
        work: Execute,
        *,
        study_spec: StudySpec | None = None,
        wait: Callable[[float], None] = lambda _seconds: None,
        clock: Callable[[], float] = lambda: 0.0,
        backend: Backend | None = None,
    ) -> None:
        self.tracker, self.listener = MemoryTracker(NAME), Heard()
        study_spec = study_spec or spec()
        self.study = Study.open(study_spec, home, clock=lambda: NOON + timedelta(seconds=clock()))
        self.record: StudyRecord = Runner(
            spec=study_spec,
            study=self.study,
            backend=LocalBackend(execute=work, hardware=lambda: {"device": "made up"}) if backend is None else backend,
            tracker=self.tracker,
            home=home,
            clock=clock,
            listener=self.listener,
            wait=wait,
        ).run()


def states(record: StudyRecord) -> list[str]:
    return [trial.state.value for trial in record.trials]


def test_a_study_that_is_asked_to_stop_stops_and_goes_on_later(home: Home) -> None:
    work = Work(lambda count: ask(home, RequestKind.STOP) if count == 3 else None)
    stopped = Driven(home, work)
    assert stopped.record.state is StudyState.INTERRUPTED
    assert "stopped by" in stopped.record.message
    assert f"plt resume {NAME}" in stopped.record.message
    assert states(stopped.record) == ["COMPLETE", "COMPLETE", "WAITING"]
    assert RunStatus.RUNNING not in {run.status for run in stopped.tracker.runs()}
    later = Driven(home, Work())
    assert later.record.state is StudyState.COMPLETE, "a request is carried out once"
    assert states(later.record) == ["COMPLETE"] * 4


def test_a_stop_meant_for_a_driver_that_is_gone_does_not_stop_the_next(home: Home) -> None:
    Study.open(spec(), home)
    ask(home, RequestKind.STOP, to="elsewhere:1")
    ask(home, RequestKind.PAUSE, to="elsewhere:1")
    assert Driven(home, Work()).record.state is StudyState.COMPLETE


def test_a_driver_carries_out_what_it_was_asked_before_its_loop_began(home: Home) -> None:
    Study.open(spec(), home)
    ask(home, RequestKind.STOP)
    work = Work()
    assert Driven(home, work).record.state is StudyState.INTERRUPTED
    assert work.requests == []


def test_a_paused_study_holds_no_attempt_until_it_goes_on(home: Home) -> None:
    waited: list[list[str]] = []

    def wait(_seconds: float) -> None:
        waited.append(states(StudyReading.of(home)))
        if len(waited) == 3:
            ask(home, RequestKind.RESUME)

    work = Work(lambda count: ask(home, RequestKind.PAUSE) if count == 2 else None)
    driven = Driven(home, work, wait=wait)
    assert waited == [["COMPLETE", "WAITING"]] * 3
    assert driven.record.state is StudyState.COMPLETE
    assert states(driven.record) == ["COMPLETE"] * 4
    assert [len(trial.attempts) for trial in driven.record.trials] == [1, 2, 1, 1]
    assert any("paused by" in notice for notice in driven.listener.notices)


class StudyReading:
    """The study as another process reads it; without a driver's lock PAUSED is shown as INTERRUPTED."""

    @staticmethod
    def of(home: Home) -> StudyRecord:
        return read_study(home, NAME)


def test_more_budget_while_it_runs(home: Home) -> None:
    work = Work(lambda count: ask(home, RequestKind.BUDGET, 3) if count == 2 else None)
    record = Driven(home, work, study_spec=spec(budget={"configurations": 2})).record
    assert record.message == "budget spent (3 configurations)"
    assert states(record) == ["COMPLETE"] * 3
    assert record.budget == 3


def test_failures_are_tried_again_while_it_runs(home: Home) -> None:
    def meanwhile(count: int) -> Failure | None:
        if count == 3:
            ask(home, RequestKind.RETRY_FAILED)
        return Failure(reason=FailureReason.DIVERGED, message="nan") if count == 1 else None

    record = Driven(home, Work(meanwhile)).record
    assert states(record) == ["FAIL", "COMPLETE", "COMPLETE", "COMPLETE", "COMPLETE"]
    assert [trial.retries for trial in record.trials] == [None, None, None, 0, None]
    assert len({trial.configuration for trial in record.trials}) == 4


def failing(*failures: FailureReason) -> Work:
    """The first attempts end so."""
    return Work(lambda count: Failure(reason=failures[count - 1], message="x") if count <= len(failures) else None)


def test_a_lost_worker_goes_on_from_every_earlier_attempt_the_newest_first(home: Home) -> None:
    work = failing(FailureReason.WORKER_LOST, FailureReason.WORKER_LOST)
    record = Driven(home, work, study_spec=spec(budget={"configurations": 1})).record
    assert states(record) == ["COMPLETE"]
    first, second, third = work.requests
    assert first.resume_from == ()
    assert second.resume_from == (first.folder,)
    assert third.resume_from == (second.folder, first.folder)
    assert len({request.attempt_id for request in work.requests}) == 3


def test_lack_of_gpu_memory_halves_the_micro_batches_once(home: Home) -> None:
    work = failing(FailureReason.GPU_OOM, FailureReason.GPU_OOM)
    trial = Driven(home, work, study_spec=spec(budget={"configurations": 1})).record.trials[0]
    assert [request.halvings for request in work.requests] == [0, 1]
    assert trial.state is TrialState.FAIL
    assert trial.failure is not None
    assert trial.failure["reason"] == "gpu_oom"


def test_lost_workers_do_not_use_up_the_attempts_of_exceptions(home: Home) -> None:
    reasons = [FailureReason.WORKER_LOST] * 3 + [FailureReason.EXCEPTION] * 2
    record = Driven(home, failing(*reasons), study_spec=spec(budget={"configurations": 1})).record
    assert states(record) == ["COMPLETE"]
    assert len(record.trials[0].attempts) == 6


class Clock:
    """Goes on only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Hanging(LocalBackend):
    """Attempts report once and are never heard of again; every look takes twenty seconds. Stopped ones are noted."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(execute=Work(), hardware=lambda: {"device": "made up"})
        self._clock = clock
        self._new: list[str] = []
        self.stopped: list[str] = []

    def submit(self, request: Request) -> None:
        self._new.append(request.attempt_id)

    def poll(self, timeout: float) -> list[Event]:
        del timeout
        self._clock.now += 20.0
        report = MetricReport(step=1, tokens=10, metrics={"train/loss": 1.0}, seconds=0.1)
        reported, self._new = [AttemptReported(each, report) for each in self._new], []
        return list(reported)

    def stop(self, attempt_id: str) -> None:
        self.stopped.append(attempt_id)


def test_an_attempt_without_a_report_for_too_long_is_stopped_and_tried_once_more(home: Home) -> None:
    clock = Clock()
    backend = Hanging(clock)
    timed = spec(budget={"configurations": 1}, retry={"trial_timeout": "60s"})
    trial = Driven(home, Work(), study_spec=timed, clock=clock, backend=backend).record.trials[0]
    assert trial.state is TrialState.FAIL
    assert [attempt.failure and attempt.failure["reason"] for attempt in trial.attempts] == ["timeout", "timeout"]
    assert backend.stopped == ["trial-0-attempt-1", "trial-0-attempt-2"]
    assert trial.failure is not None
    assert "60 s" in trial.failure["message"]
    assert clock.now == 2 * 100.0, "twenty seconds to the report, then more than sixty"


def test_device_hours_end_the_study_however_often_it_is_continued(home: Home) -> None:
    clock = Clock()

    def an_hour(_count: int) -> None:
        clock.now += 3600.0

    limited = spec(budget={"configurations": 4, "device_hours": 2.5})
    record = Driven(home, Work(an_hour), study_spec=limited, clock=clock).record
    assert record.message == "budget spent (2.5 device hours)"
    assert states(record) == ["COMPLETE", "COMPLETE", "WAITING"]
    work = Work()
    again = Driven(home, work, study_spec=limited, clock=clock).record
    assert not work.requests
    assert again.message == record.message
    assert states(Driven(home, Work(), clock=clock).record) == ["COMPLETE"] * 4


@pytest.fixture
def finished(home: Home) -> TrialRecord:
    return Driven(home, Work(), study_spec=spec(budget={"configurations": 1})).record.trials[0]


def test_the_folder_of_a_finished_trial_keeps_no_training_state(home: Home, finished: TrialRecord) -> None:
    assert not (home.attempt(NAME, finished.number, 1) / "state").exists()


def test_the_live_file_says_what_runs_and_is_empty_at_the_end(home: Home) -> None:
    seen: list[dict[str, Any]] = []
    clock = Clock()

    def look(_count: int) -> None:
        clock.now += 2.0
        if home.live(NAME).exists():
            seen.append(json.loads(home.live(NAME).read_text()))

    Driven(home, Work(look), clock=clock)
    assert any(snapshot["trials"] for snapshot in seen)
    assert json.loads(home.live(NAME).read_text())["trials"] == {}
