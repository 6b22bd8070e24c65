"""The driver's loop: ask for trials, run them on the backend, tell their outcomes, mirror them in the tracker.

    ask -> breaks a constraint by its shapes alone? tell
        -> measure the architecture (once per home and hardware) -> breaks a constraint? tell
        -> train and evaluate, reporting -> tell

The runner is the only writer of the study and the tracker. It takes decisions from `orchestrator.policy` and never
looks at a clock but the one it was given.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.backends.backend import AttemptEnded, AttemptReported, Backend, Event
from orchestrator.benchmark_cache import BenchmarkCache, Measurement
from orchestrator.configuration import Configuration, resolve
from orchestrator.constraints import violated_constraints
from orchestrator.home import Home
from orchestrator.listener import Listener, Silence
from orchestrator.policy import Decision, decide, too_many_failures
from orchestrator.records import StudyRecord, StudyState, TrialRecord, TrialState
from orchestrator.spec import StudySpec
from orchestrator.study import Study
from orchestrator.tracking.tracker import Tracker
from workers.protocol import BenchmarkRequest, Failure, FailureReason, TrialOutcome, TrialRequest

_POLL_SECONDS = 0.5
_INTERRUPTED = (StudyState.INTERRUPTED, "interrupted; run it again to continue")


@dataclass
class _Active:
    """A trial between ask and tell."""

    trial: TrialRecord
    configuration: Configuration
    known: dict[str, float] = field(default_factory=dict)
    """Metrics that are known without training."""
    attempt: int = 0


class Runner:
    """Runs one study until its budget is spent, it fails, or it is interrupted."""

    def __init__(
        self,
        *,
        spec: StudySpec,
        study: Study,
        backend: Backend,
        tracker: Tracker,
        home: Home,
        clock: Callable[[], float],
        listener: Listener | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """`should_stop` is asked between events: that is where an interrupt cannot tear anything apart."""
        self._spec, self._study, self._backend, self._tracker, self._home = spec, study, backend, tracker, home
        self._clock, self._should_stop = clock, should_stop
        self._listener = listener or Silence()
        self._active: dict[int, _Active] = {}
        self._training: dict[str, int] = {}
        self._measuring: dict[str, list[int]] = {}
        self._measure_attempts: dict[str, int] = {}
        self._cache: BenchmarkCache | None = None
        self._began = clock()
        self._finished_now: list[TrialRecord] = []
        """Trials that ended while this driver ran: the failures of an earlier one are its own affair."""

    def run(self) -> StudyRecord:
        """Drive the study to its end; an interrupt leaves it ready to be continued."""
        orphans = self._study.orphans()
        self._study.set_state(StudyState.RUNNING, "")
        record = self._study.record()
        self._tracker.start_study(record)
        self._tracker.reconcile(record, owned=[trial.number for trial in orphans])
        self._listener.study_started(record)
        try:
            for trial in orphans:
                self._admit(trial)
            state, message = self._loop()
        except KeyboardInterrupt:
            self._release_active()
            state, message = _INTERRUPTED
        except BaseException:
            self._release_active()
            self._finish(StudyState.INTERRUPTED, "the driver failed; run it again to continue")
            raise
        return self._finish(state, message)

    def _loop(self) -> tuple[StudyState, str]:
        while True:
            if self._should_stop():
                self._release_active()
                return _INTERRUPTED
            self._fill()
            if not self._active:
                return self._study_ending()
            for event in self._backend.poll(_POLL_SECONDS):
                self._handle(event)
            broken = self._too_many_failures()
            if broken is not None:
                self._release_active()
                return StudyState.FAILED, broken

    def _study_ending(self) -> tuple[StudyState, str]:
        if self._out_of_time() and not self._study.exhausted():
            return StudyState.INTERRUPTED, "the wall-clock budget is spent; run it again to continue"
        states = {trial.state for trial in self._study.trials()}
        if states == {TrialState.FAIL}:
            return StudyState.FAILED, f"every trial failed; {self._study.why_exhausted()}"
        return StudyState.COMPLETE, self._study.why_exhausted()

    def _fill(self) -> None:
        while len(self._active) < self._backend.slots and not self._out_of_time():
            trial = self._study.ask()
            if trial is None:
                return
            self._admit(trial)

    def _out_of_time(self) -> bool:
        limit = self._spec.budget.wall_clock
        return limit is not None and self._clock() - self._began >= limit

    def _admit(self, trial: TrialRecord) -> None:
        """Take a trial in hand: settle what is known of it without training, cheapest first."""
        active = _Active(trial, resolve(self._spec, trial.params))
        self._active[trial.number] = active
        active.known = active.configuration.metrics_beforehand()
        architecture = active.configuration.architecture
        if self._ended_as_infeasible(active):
            return
        if architecture is None:
            self._train(active)
        elif (measured := self._benchmarks().get(architecture)) is not None:
            self._train_with(active, measured)
        elif architecture in self._measuring:
            self._measuring[architecture].append(trial.number)
        else:
            self._measuring[architecture] = [trial.number]
            self._measure_attempts[architecture] = 0
            self._measure(architecture)

    def _benchmarks(self) -> BenchmarkCache:
        if self._cache is None:
            threads = self._spec.resources.benchmark.threads
            self._cache = BenchmarkCache(self._home.benchmarks, self._backend.hardware(), threads)
        return self._cache

    def _measure(self, architecture: str) -> None:
        first = self._active[self._measuring[architecture][0]]
        model, grid = first.configuration.benchmark_model, first.configuration.benchmark
        assert model is not None
        assert grid is not None
        self._measure_attempts[architecture] += 1
        self._listener.benchmark_started(first.trial)
        self._backend.submit(
            BenchmarkRequest(
                attempt_id=f"benchmark-{architecture}",
                model=model,
                benchmark=grid,
                threads=self._spec.resources.benchmark.threads,
            )
        )

    def _train_with(self, active: _Active, measured: Measurement) -> None:
        """Train with the architecture's measurements at hand, unless they break a constraint."""
        active.known.update(measured.metrics)
        if not self._ended_as_infeasible(active):
            self._train(active)

    def _ended_as_infeasible(self, active: _Active) -> bool:
        if not violated_constraints(self._spec.constraints, active.known):
            return False
        self._end(self._study.infeasible(active.trial.number, active.known))
        return True

    def _train(self, active: _Active) -> None:
        number, configuration = active.trial.number, active.configuration
        active.attempt = self._study.start_attempt(number)
        active.trial = self._study.trial(number)
        attempt_id = f"trial-{number}-attempt-{active.attempt}"
        self._training[attempt_id] = number
        self._tracker.start_trial(active.trial)
        self._listener.trial_started(
            active.trial, active.attempt, configuration.train.steps(configuration.data.seq_len)
        )
        self._backend.submit(
            TrialRequest(
                attempt_id=attempt_id,
                model=configuration.model,
                data=configuration.data,
                train=configuration.train,
                seed=active.trial.seed,
                data_folder=str(self._home.data),
                checkpoint_folder=str(self._home.attempt(self._study.name, number, active.attempt) / "checkpoint"),
                threads=self._spec.resources.train.threads,
            )
        )

    def _handle(self, event: Event) -> None:
        if isinstance(event, AttemptReported):
            number = self._training.get(event.attempt_id)
            if number is not None:
                self._tracker.report(number, event.report)
                self._listener.trial_reported(self._active[number].trial, event.report)
        elif event.attempt_id in self._training:
            self._trained(self._active[self._training.pop(event.attempt_id)], event.outcome)
        else:
            self._measured(event)

    def _measured(self, event: AttemptEnded) -> None:
        architecture = event.attempt_id.removeprefix("benchmark-")
        waiting = self._measuring[architecture]
        failure = event.outcome.failure
        if failure is not None and self._decide(failure, self._measure_attempts[architecture]) is Decision.RETRY:
            self._measure(architecture)
            return
        del self._measuring[architecture]
        if failure is not None:
            for number in waiting:
                self._end(self._study.fail(number, failure))
            return
        measurement = Measurement(metrics=event.outcome.metrics, info=event.outcome.info)
        self._benchmarks().put(architecture, measurement)
        for number in waiting:
            self._train_with(self._active[number], measurement)

    def _trained(self, active: _Active, outcome: TrialOutcome) -> None:
        number = active.trial.number
        self._study.end_attempt(number, outcome)
        if outcome.failure is None:
            self._end(self._study.complete(number, {**active.known, **outcome.metrics}))
        elif self._decide(outcome.failure, _failed_attempts(self._study.trial(number))) is Decision.RETRY:
            self._listener.trial_retried(active.trial, outcome.failure.message)
            self._train(active)
        else:
            self._end(self._study.fail(number, outcome.failure, {**active.known, **outcome.metrics}))

    def _decide(self, failure: Failure, attempts: int) -> Decision:
        return decide(failure, attempts, self._spec.retry.max_attempts)

    def _end(self, trial: TrialRecord) -> None:
        del self._active[trial.number]
        self._finished_now.append(trial)
        self._tracker.finish_trial(trial)
        self._listener.trial_ended(trial)

    def _too_many_failures(self) -> str | None:
        failures = [trial.failure for trial in self._finished_now if trial.failure is not None]
        return too_many_failures(len(self._finished_now), failures, self._spec.budget.max_failure_rate)

    def _release_active(self) -> None:
        """Stop what runs and give the trials back, so that the next driver runs them first."""
        for attempt_id in [*self._training, *(f"benchmark-{architecture}" for architecture in self._measuring)]:
            self._backend.stop(attempt_id)
        for number in self._active:
            self._study.release(number)
        self._active.clear()
        self._training.clear()
        self._measuring.clear()

    def _finish(self, state: StudyState, message: str) -> StudyRecord:
        self._study.set_state(state, message)
        record = self._study.record()
        self._tracker.finish_study(record)
        self._listener.study_ended(record)
        return record


def _failed_attempts(trial: TrialRecord) -> int:
    """Executions that count against `max_attempts`: not those that an interrupt or the driver's death ended."""
    reasons = [attempt.failure["reason"] for attempt in trial.attempts if attempt.failure is not None]
    return sum(reason != FailureReason.DRIVER_LOST for reason in reasons)
