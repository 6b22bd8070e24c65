"""The driver's loop on a real study, backend and tracker; only the work of a trial is a small formula."""

import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from orchestrator.backends.local_backend import LocalBackend
from orchestrator.home import Home
from orchestrator.records import StudyRecord, StudyState, TrialState
from orchestrator.runner import Runner
from orchestrator.spec import StudySpec
from orchestrator.studies import read_study
from orchestrator.study import Study
from orchestrator.tracking.memory_tracker import MemoryTracker
from orchestrator.tracking.tracked_run import RunStatus
from workers.protocol import (
    BenchmarkRequest,
    Execute,
    Failure,
    FailureReason,
    MetricReport,
    Request,
    ShouldStop,
    TrialOutcome,
    TrialRequest,
    never_stop,
)


def latency(loops: int) -> float:
    return 10.0 + loops


def bits(request: TrialRequest) -> float:
    return 3.0 - 0.1 * request.model.num_loops - 0.001 * (request.model.window or 0) + 0.01 * request.seed


class Work:
    """Carries out requests by formula, keeps what it was asked, and does as `trouble` says."""

    def __init__(self, trouble: Callable[[Request, int], Failure | BaseException | None] = lambda _r, _n: None) -> None:
        self.trials: list[TrialRequest] = []
        self.benchmarks: list[BenchmarkRequest] = []
        self._trouble = trouble

    def __call__(self, request: Request, should_stop: ShouldStop = never_stop) -> Iterator[MetricReport | TrialOutcome]:
        del should_stop
        asked = self.benchmarks if isinstance(request, BenchmarkRequest) else self.trials
        asked.append(request)  # type: ignore[arg-type]
        trouble = self._trouble(request, len(asked))
        if isinstance(trouble, BaseException):
            raise trouble
        if isinstance(request, BenchmarkRequest):
            metrics = {"decode/ms_per_token": latency(request.model.num_loops), "kv/bytes_per_sequence": 100.0}
        else:
            yield MetricReport(step=1, tokens=10, metrics={"train/loss": 2.0}, seconds=0.1)
            metrics = {"val/bits_per_byte": bits(request)}
        yield TrialOutcome(metrics={} if trouble else metrics, failure=trouble, seconds=1.0)


def spec(**changes: Any) -> StudySpec:
    plain: dict[str, Any] = {
        "name": "runner-test",
        "model": {"variant": "plt", "d_model": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 2},
        "data": {"corpus": "stdlib", "seq_len": 64},
        "train": {"tokens": 1000, "batch_size": 2},
        "search": {
            "num_loops": {"choices": [1, 2, 3]},
            "window": {"choices": [8, 16], "when": {"num_loops": ">1"}},
        },
        "objectives": [
            {"metric": "val/bits_per_byte", "direction": "minimize"},
            {"metric": "decode/ms_per_token", "direction": "minimize"},
        ],
        "sampler": {"name": "grid"},
        "budget": {"configurations": 10},
        "benchmark": {"context": 64, "generate": 4},
    }
    return StudySpec.from_plain({**plain, **changes})


class Driven:
    """One run of a study, with its parts at hand."""

    def __init__(
        self,
        root: Path,
        study_spec: StudySpec,
        work: Execute,
        clock: Callable[[], float] = lambda: 0.0,
        prepare: Callable[[Study], object] = lambda _study: None,
    ) -> None:
        self.home = Home(root)
        self.tracker = MemoryTracker(study_spec.name)
        self.study = Study.open(study_spec, self.home)
        prepare(self.study)
        backend = LocalBackend(execute=work, hardware=lambda: {"device": "made up"})
        self.record: StudyRecord = Runner(
            spec=study_spec, study=self.study, backend=backend, tracker=self.tracker, home=self.home, clock=clock
        ).run()


def test_every_point_is_trained_once_and_measured_once_per_architecture(tmp_path: Path) -> None:
    work = Work()
    record = Driven(tmp_path, spec(seeds=[0, 1]), work).record
    assert record.state is StudyState.COMPLETE
    assert "every point tried" in record.message
    assert len(work.benchmarks) == 5
    assert len(work.trials) == 10
    assert [trial.state for trial in record.trials] == [TrialState.COMPLETE] * 10
    for trial, request in zip(record.trials, work.trials, strict=True):
        assert trial.metrics["val/bits_per_byte"] == bits(request)
        assert trial.values == (bits(request), latency(request.model.num_loops))
    assert len({request.folder for request in work.trials}) == 10
    assert read_study(Home(tmp_path), "runner-test").trials == record.trials


def test_the_same_study_twice_gives_identical_trials(tmp_path: Path) -> None:
    once, twice = (Driven(tmp_path / name, spec(sampler={"name": "tpe", "seed": 3}), Work()).record for name in "ab")
    assert [(t.params, t.values, t.seed) for t in once.trials] == [(t.params, t.values, t.seed) for t in twice.trials]


def test_a_second_run_does_nothing_and_a_larger_budget_continues(tmp_path: Path) -> None:
    first = Driven(tmp_path, spec(budget={"configurations": 2}), Work()).record
    work = Work()
    again = Driven(tmp_path, spec(budget={"configurations": 2}), work).record
    assert again.trials == first.trials
    assert not work.trials
    assert not work.benchmarks
    more = Driven(tmp_path, spec(budget={"configurations": 4}), work).record
    assert more.trials[:2] == first.trials
    assert len(work.trials) == 2


def test_a_point_that_breaks_a_constraint_costs_no_training(tmp_path: Path) -> None:
    work = Work()
    driven = Driven(tmp_path, spec(constraints=["decode/ms_per_token <= 12"]), work)
    states = {trial.params["num_loops"]: trial.state for trial in driven.record.trials}
    assert states == {1: TrialState.COMPLETE, 2: TrialState.COMPLETE, 3: TrialState.PRUNED}
    assert all(request.model.num_loops < 3 for request in work.trials)
    assert all(trial.feasible is (trial.state is TrialState.COMPLETE) for trial in driven.record.trials)
    assert len(driven.tracker.runs()) == len(driven.record.trials) == 5


def test_kv_memory_is_known_beforehand_so_that_not_even_a_benchmark_is_spent(tmp_path: Path) -> None:
    plain_kv = 2 * 1 * 16 * 2 * 68
    work = Work()
    record = Driven(tmp_path, spec(constraints=[f"kv/bytes_per_sequence <= {plain_kv}"]), work).record
    assert len(work.benchmarks) == len(work.trials) == 1
    assert [trial.state for trial in record.trials].count(TrialState.PRUNED) == 4


def test_an_exception_is_retried_and_the_failure_kept(tmp_path: Path) -> None:
    failure = Failure(reason=FailureReason.EXCEPTION, message="no luck", traceback="Traceback ...")
    work = Work(lambda request, count: failure if isinstance(request, TrialRequest) and count == 1 else None)
    record = Driven(tmp_path, spec(), work).record
    first = record.trials[0]
    assert first.state is TrialState.COMPLETE
    assert [attempt.failure and attempt.failure["message"] for attempt in first.attempts] == ["no luck", None]
    assert len(work.trials) == 6


def test_divergence_is_final_and_never_in_the_values(tmp_path: Path) -> None:
    def trouble(request: Request, count: int) -> Failure | None:
        del count
        diverges = isinstance(request, TrialRequest) and request.model.num_loops == 3
        return Failure(reason=FailureReason.DIVERGED, message="train/loss is nan") if diverges else None

    record = Driven(tmp_path, spec(budget={"configurations": 10, "max_failure_rate": 1.0}), Work(trouble)).record
    failed = [trial for trial in record.trials if trial.state is TrialState.FAIL]
    assert len(failed) == 2
    assert all(trial.values is None and len(trial.attempts) == 1 for trial in failed)
    assert all(trial.failure is not None and trial.failure["reason"] == "diverged" for trial in failed)


def test_too_many_failures_end_the_study_and_name_the_reason(tmp_path: Path) -> None:
    failure = Failure(reason=FailureReason.DIVERGED, message="train/loss is nan")
    record = Driven(tmp_path, spec(), Work(lambda r, _n: failure if isinstance(r, TrialRequest) else None)).record
    assert record.state is StudyState.FAILED
    assert "diverged (5)" in record.message


def test_a_benchmark_that_keeps_failing_fails_the_trial_with_its_reason(tmp_path: Path) -> None:
    failure = Failure(reason=FailureReason.EXCEPTION, message="decode gives other logits")
    work = Work(lambda r, _n: failure if isinstance(r, BenchmarkRequest) else None)
    record = Driven(tmp_path, spec(budget={"configurations": 1}), work).record
    assert len(work.benchmarks) == 3
    assert record.trials[0].failure is not None
    assert record.trials[0].failure["message"] == "decode gives other logits"


def test_an_interrupt_leaves_a_study_that_continues_where_it_was(tmp_path: Path) -> None:
    whole = Driven(tmp_path / "whole", spec(), Work()).record
    interrupted = Work(lambda r, n: KeyboardInterrupt() if isinstance(r, TrialRequest) and n == 3 else None)
    driven = Driven(tmp_path / "broken", spec(), interrupted)
    assert driven.record.state is StudyState.INTERRUPTED
    assert [run.status for run in driven.tracker.runs()].count(RunStatus.RUNNING) == 0
    assert not [trial for trial in driven.record.trials if trial.state is TrialState.RUNNING]
    work = Work()
    record = Driven(tmp_path / "broken", spec(), work).record
    assert [(t.params, t.values) for t in record.trials] == [(t.params, t.values) for t in whole.trials]
    assert len(work.trials) == 3


def drive_until_power_cut(root: Path) -> None:
    """A driver that dies at once, as by kill -9, while its third trial trains."""

    def cut(request: Request, count: int) -> None:
        if isinstance(request, TrialRequest) and count == 3:
            os._exit(9)

    Driven(root, spec(), Work(cut))


def test_a_killed_driver_is_continued_and_nothing_finished_runs_again(tmp_path: Path) -> None:
    whole = Driven(tmp_path / "whole", spec(), Work()).record
    driver = multiprocessing.get_context("fork").Process(target=drive_until_power_cut, args=(tmp_path / "cut",))
    driver.start()
    driver.join()
    assert driver.exitcode == 9
    left = read_study(Home(tmp_path / "cut"), "runner-test")
    assert left.state is StudyState.INTERRUPTED
    assert [trial.state for trial in left.trials] == [TrialState.COMPLETE] * 2 + [TrialState.WAITING]
    work = Work()
    driven = Driven(tmp_path / "cut", spec(), work)
    assert driven.record.state is StudyState.COMPLETE
    assert len(work.trials) == 3
    assert [(t.params, t.values) for t in driven.record.trials] == [(t.params, t.values) for t in whole.trials]
    lost, continued = driven.record.trials[2].attempts
    assert lost.failure is not None
    assert lost.failure["reason"] == "driver_lost"
    assert continued.failure is None
    assert [run.number for run in driven.tracker.runs()] == list(range(5))


def ticking(step: float = 1.0) -> Callable[[], float]:
    """A clock that goes on by so much whenever it is asked."""
    ticks = itertools.count()
    return lambda: step * next(ticks)


def test_wall_clock_ends_the_study_and_gives_back_what_ran(tmp_path: Path) -> None:
    budget = {"configurations": 10, "wall_clock": "20s"}
    record = Driven(tmp_path, spec(budget=budget), Work(), clock=ticking()).record
    assert record.state is StudyState.INTERRUPTED
    assert "wall-clock" in record.message
    states = [trial.state for trial in record.trials]
    assert 0 < len(states) < 5
    assert set(states) <= {TrialState.COMPLETE, TrialState.WAITING}
    whole = Driven(tmp_path / "whole", spec(), Work()).record
    continued = Driven(tmp_path, spec(), Work()).record
    assert [(t.params, t.values) for t in continued.trials] == [(t.params, t.values) for t in whole.trials]


def test_a_request_to_stop_is_heard_between_events(tmp_path: Path) -> None:
    work, home, study_spec = Work(), Home(tmp_path), spec()
    study = Study.open(study_spec, home)
    record = Runner(
        spec=study_spec,
        study=study,
        backend=LocalBackend(execute=work, hardware=lambda: {"device": "made up"}),
        tracker=MemoryTracker(study_spec.name),
        home=home,
        clock=lambda: 0.0,
        should_stop=lambda: len(work.trials) == 2,
    ).run()
    assert record.state is StudyState.INTERRUPTED
    assert [trial.state for trial in record.trials] == [TrialState.COMPLETE, TrialState.WAITING]


def test_interrupts_do_not_use_up_attempts(tmp_path: Path) -> None:
    for _ in range(3):
        interrupted = Driven(
            tmp_path, spec(), Work(lambda r, _n: KeyboardInterrupt() if isinstance(r, TrialRequest) else None)
        )
        assert interrupted.record.state is StudyState.INTERRUPTED
    failure = Failure(reason=FailureReason.EXCEPTION, message="no luck")
    work = Work(lambda request, count: failure if isinstance(request, TrialRequest) and count == 1 else None)
    first = Driven(tmp_path, spec(), work).record.trials[0]
    assert first.state is TrialState.COMPLETE
    assert len(first.attempts) == 5


def test_failed_trials_are_tried_again_when_the_cause_is_mended(tmp_path: Path) -> None:
    """Exactly the failed ones run again, as new trials; the failures stay on record."""
    failure = Failure(reason=FailureReason.DIVERGED, message="train/loss is nan")
    loops_3 = Work(lambda r, _n: failure if isinstance(r, TrialRequest) and r.model.num_loops == 3 else None)
    tolerant = spec(budget={"configurations": 10, "max_failure_rate": 1.0})
    assert Driven(tmp_path, tolerant, loops_3).record.state is StudyState.COMPLETE
    work = Work()
    driven = Driven(tmp_path, tolerant, work, prepare=lambda study: study.retry_failed())
    assert [request.model.num_loops for request in work.trials] == [3, 3]
    assert [trial.state for trial in driven.record.trials] == [TrialState.COMPLETE] * 3 + [TrialState.FAIL] * 2 + [
        TrialState.COMPLETE
    ] * 2
    assert [trial.retries for trial in driven.record.trials] == [None] * 5 + [3, 4]
    assert len({trial.configuration for trial in driven.record.trials}) == 5
    assert [run.number for run in driven.tracker.runs()] == list(range(7))
    nothing = Work()
    Driven(tmp_path, tolerant, nothing, prepare=lambda study: study.retry_failed())
    assert not nothing.trials


def test_a_small_study_whose_trials_all_fail_has_failed(tmp_path: Path) -> None:
    failure = Failure(reason=FailureReason.INVALID, message="the corpus is too small")
    work = Work(lambda r, _n: failure if isinstance(r, TrialRequest) else None)
    record = Driven(tmp_path, spec(budget={"configurations": 2}), work).record
    assert record.state is StudyState.FAILED
    assert len(work.trials) == 2
