"""The driver's loop: ask for trials, run them on the backend, tell their outcomes, mirror them in the tracker.

    ask -> breaks a constraint by its shapes alone? tell
        -> measure the architecture (once per home and hardware) -> breaks a constraint? tell
        -> train with reports, judged at the pruner's rungs -> evaluate -> tell

The runner is the only writer of the study's trials and of the tracker. It takes decisions from `orchestrator.policy`
and never looks at a clock but the one it was given. Between two events everything is written and nothing is half told,
so that is where it looks for interrupts and for what others asked of it.
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import takewhile

from orchestrator.attempts import failure_reasons, trial_request
from orchestrator.backends.backend import AttemptEnded, AttemptReported, Backend, Event
from orchestrator.benchmark_cache import Measurement
from orchestrator.configuration import Configuration, resolve
from orchestrator.constraints import violated_constraints
from orchestrator.home import Home, write_aside
from orchestrator.judge import Judge
from orchestrator.latency_devices import MEASURED_ON, device_text
from orchestrator.listener import Listener, Silence
from orchestrator.live import LiveFile
from orchestrator.loop_table import to_csv
from orchestrator.measurements import Measurements
from orchestrator.policy import Decision, decide, too_many_failures
from orchestrator.process_name import process_name
from orchestrator.records import StudyRecord, StudyState, TrialRecord, TrialState
from orchestrator.requests import Request, RequestKind
from orchestrator.spec import StudySpec
from orchestrator.study import Study
from orchestrator.tracking.tracker import Tracker
from workers.attempt_folder import AttemptFolder
from workers.protocol import BenchmarkRequest, Failure, FailureReason, TrialOutcome, TrialRequest

_POLL_SECONDS = 0.5
_PAUSE_SECONDS = 0.2
_QUEUED_SECONDS = 30.0

Ending = tuple[StudyState, str]
"""The state that a study is left in, and why."""


@dataclass
class _Active:
    """A trial between ask and tell."""

    trial: TrialRecord
    configuration: Configuration
    known: dict[str, float] = field(default_factory=dict)
    """Metrics that are known without training."""
    measured_on: str | None = None
    """The type of device that its latency was measured on."""


class Runner:
    """Runs one study until its budget is spent, it fails, or it is stopped."""

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
        wait: Callable[[float], None] = time.sleep,
        discard_stored: Callable[[int], None] = lambda _number: None,
    ) -> None:
        """`should_stop` is asked between events; `wait` passes the time of a paused study, in seconds; `discard_stored`
        is told which trial's stored training states nobody needs any more.
        """
        self._spec, self._study, self._backend, self._tracker, self._home = spec, study, backend, tracker, home
        self._clock, self._should_stop, self._wait = clock, should_stop, wait
        self._listener = listener or Silence()
        self._discard_stored = discard_stored
        self._judge = Judge(spec, study)
        self._measurements = Measurements(home, backend.hardware, spec.resources.benchmark.threads)
        self._live = LiveFile(home.live(spec.name), clock)
        self._devices = (spec.resources.train.gpus or 1.0) * spec.resources.workers_per_trial
        self._active: dict[int, _Active] = {}
        self._training: dict[str, int] = {}
        self._heard: dict[str, float] = {}
        """When each attempt that is under way was last heard of, the longest silent one first."""
        self._queued_at = -math.inf
        """When something last waited for a device."""
        self._began_training: dict[str, float] = {}
        self._began = clock()
        self._paused = False
        self._queued_since = self._began
        self._ended_now = 0
        self._failures_now: Counter[str] = Counter()
        """Of the trials that ended while this driver ran: the failures of an earlier one are its own affair."""

    def run(self) -> StudyRecord:
        """Drive the study to its end; an interrupt leaves it ready to be continued."""
        orphans = self._study.orphans()
        self._forget_requests_to_another()
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
            state, message = self._interrupted()
        except BaseException:
            self._release_active()
            self._finish(StudyState.INTERRUPTED, f"the driver failed; `plt resume {self._spec.name}` continues it")
            raise
        return self._finish(state, message)

    def _loop(self) -> Ending:
        while True:
            ending = self._interrupted() if self._should_stop() else self._answer_requests() or self._spent()
            if ending is not None:
                self._release_active()
                return ending
            if self._paused:
                self._wait(_PAUSE_SECONDS)
                continue
            self._fill()
            if not self._active:
                return self._study_ending()
            for event in self._backend.poll(_POLL_SECONDS):
                self._handle(event)
            self._end_hung_attempts()
            self._say_what_is_waited_for()
            self._live.write()

    def _say_what_is_waited_for(self) -> None:
        """At once to whoever watches, and after a while to whoever listens: an actor starts within seconds."""
        why = self._backend.queued_because()
        self._live.queued(why)
        if why is None:
            self._queued_since = self._clock()
        elif self._clock() - self._queued_since > _QUEUED_SECONDS:
            self._listener.notice(f"queued: {why}")
            self._queued_since = math.inf

    def _interrupted(self) -> Ending:
        return StudyState.INTERRUPTED, f"interrupted; `plt resume {self._spec.name}` continues it"

    def _spent(self) -> Ending | None:
        """Whether time, devices or patience with failures have run out."""
        budget, again = self._spec.budget, f"`plt resume {self._spec.name}` continues it"
        if budget.wall_clock is not None and self._clock() - self._began >= budget.wall_clock:
            return StudyState.INTERRUPTED, f"the wall-clock budget is spent; {again}"
        if budget.device_hours is not None and self._device_hours() >= budget.device_hours:
            return StudyState.COMPLETE, f"budget spent ({budget.device_hours:g} device hours)"
        broken = too_many_failures(self._ended_now, self._failures_now, budget.max_failure_rate)
        return None if broken is None else (StudyState.FAILED, broken)

    def _device_hours(self) -> float:
        running = sum(self._clock() - began for began in self._began_training.values()) * self._devices
        return (self._study.device_seconds() + running) / 3600

    def _study_ending(self) -> Ending:
        states = {trial.state for trial in self._study.trials()}
        if states == {TrialState.FAIL}:
            again = f"`plt retry {self._spec.name} --failed` tries them again"
            return StudyState.FAILED, f"every trial failed; {self._study.why_exhausted()}; {again}"
        return StudyState.COMPLETE, self._study.why_exhausted()

    def _answer_requests(self) -> Ending | None:
        """Carry out what others asked; the ending, if that was to stop."""
        for request in self._study.requests():
            if request.kind is RequestKind.STOP:
                self._study.answer(request, "stopping")
                name = self._spec.name
                return StudyState.INTERRUPTED, f"stopped by {request.by}; `plt resume {name}` continues it"
            self._study.answer(request, self._carry_out(request))
        return None

    def _forget_requests_to_another(self) -> None:
        """Who asked an earlier driver to stop or pause did not mean this one."""
        for request in self._study.requests():
            meant_for_one_driver = request.kind in (RequestKind.STOP, RequestKind.PAUSE, RequestKind.RESUME)
            if meant_for_one_driver and request.to != process_name():
                self._study.answer(request, "the driver that was asked had ended")

    def _carry_out(self, request: Request) -> str:
        if request.kind is RequestKind.RETRY_FAILED:
            return f"{len(self._study.retry_failed())} failed trials are tried again"
        if request.kind is RequestKind.BUDGET:
            assert request.configurations is not None
            self._study.set_budget(request.configurations)
            return f"the budget is {request.configurations} configurations now"
        paused = request.kind is RequestKind.PAUSE
        if paused == self._paused:
            return "already paused" if paused else "already running"
        self._paused = paused
        if paused:
            self._release_active()
            self._backend.rest()
        message = f"paused by {request.by}; `plt resume {self._spec.name}` goes on" if paused else ""
        self._study.set_state(StudyState.PAUSED if paused else StudyState.RUNNING, message)
        self._listener.notice(message or f"{request.by} let the study go on")
        return "paused, no device is held" if paused else "going on"

    def _fill(self) -> None:
        while len(self._active) < max(1, self._backend.slots):  # the one that waits says for what
            trial = self._study.ask()
            if trial is None:
                return
            self._admit(trial)

    def _admit(self, trial: TrialRecord) -> None:
        """Take a trial in hand: settle what is known of it without training, cheapest first."""
        active = _Active(trial, resolve(self._spec, trial.params))
        self._active[trial.number] = active
        active.known = active.configuration.metrics_beforehand()
        architecture = active.configuration.architecture
        if trial.stopped_at is not None:  # judged, and the driver died before it was told
            self._end(self._study.prune(trial.number, trial.rungs[-1].metrics))
        elif self._ended_as_infeasible(active):
            return
        elif architecture is None:
            self._train(active)
        elif (measured := self._measurements.known(architecture)) is not None:
            self._train_with(active, measured)
        elif (request := self._measurements.wait_for(trial.number, active.configuration)) is not None:
            self._listener.benchmark_started(trial)
            self._submit(request)

    def _train_with(self, active: _Active, measured: Measurement) -> None:
        """Train with the architecture's measurements at hand, unless they break a constraint."""
        active.known.update(measured.metrics)
        if "hardware" in measured.info:
            active.measured_on = device_text(measured.info["hardware"])
        if not self._ended_as_infeasible(active):
            self._train(active)

    def _ended_as_infeasible(self, active: _Active) -> bool:
        if not violated_constraints(self._spec.constraints, active.known):
            return False
        self._end(self._study.prune(active.trial.number, active.known))
        return True

    def _train(self, active: _Active) -> None:
        number, configuration = active.trial.number, active.configuration
        attempt = self._study.start_attempt(number, self._devices)
        active.trial = self._study.trial(number)
        request = trial_request(
            self._spec, active.trial, configuration, self._home, self._judge.rungs(active.trial, configuration)
        )
        self._training[request.attempt_id] = number
        self._began_training[request.attempt_id] = self._clock()
        self._tracker.start_trial(active.trial)
        steps = configuration.train.steps(configuration.data.seq_len)
        self._listener.trial_started(active.trial, attempt, steps)
        self._live.started(number, attempt, steps)
        self._submit(request)

    def _submit(self, request: BenchmarkRequest | TrialRequest) -> None:
        self._heard[request.attempt_id] = self._clock()
        self._backend.submit(request)

    def _handle(self, event: Event) -> None:
        """An event of an attempt that is not under way, stopped or given up, says nothing any more."""
        if event.attempt_id not in self._heard:
            return
        del self._heard[event.attempt_id]
        if isinstance(event, AttemptReported):
            self._heard[event.attempt_id] = self._clock()
            self._reported(event)
            return
        if event.attempt_id in self._training:
            self._trained(self._leave_training(event.attempt_id), event.outcome)
        else:
            self._measured(event)

    def _reported(self, event: AttemptReported) -> None:
        number = self._training.get(event.attempt_id)
        if number is None:
            return
        active = self._active[number]
        self._tracker.report(number, event.report)
        self._listener.trial_reported(active.trial, event.report)
        self._live.reported(number, event.report)
        judged = self._judge.stops(active.trial, active.configuration, event.report, active.known)
        if judged is not None:
            self._backend.stop(event.attempt_id)
            self._leave_training(event.attempt_id)
            self._study.end_attempt(number, TrialOutcome(seconds=event.report.seconds))
            self._end(self._study.prune(number, judged.rungs[-1].metrics))

    def _leave_training(self, attempt_id: str) -> _Active:
        active = self._active[self._training.pop(attempt_id)]
        self._began_training.pop(attempt_id)
        self._heard.pop(attempt_id, None)
        self._live.ended(active.trial.number)
        return active

    def _end_hung_attempts(self) -> None:
        """What was not heard of for too long is stopped and has failed; time spent waiting for a device is no hang."""
        now, limit = self._clock(), self._spec.retry.trial_timeout
        if self._backend.queued_because() is not None:
            self._queued_at = now
        silent = takewhile(lambda item: now - max(item[1], self._queued_at) > limit, self._heard.items())
        for attempt_id in [attempt_id for attempt_id, _ in silent]:
            self._backend.stop(attempt_id)
            failure = Failure(
                reason=FailureReason.TIMEOUT, message=f"no report for {limit:g} s, see retry.trial_timeout"
            )
            self._handle(AttemptEnded(attempt_id, TrialOutcome(failure=failure)))

    def _measured(self, event: AttemptEnded) -> None:
        failure = event.outcome.failure
        if failure is not None:
            reasons, again = self._measurements.failed(event.attempt_id, failure.reason)
            if decide(reasons, self._spec.retry.max_attempts) is Decision.RETRY:
                self._submit(again)
                return
        measurement = Measurement(metrics=event.outcome.metrics, info=event.outcome.info)
        if failure is None and (elsewhere := self._measurements.elsewhere(measurement)) is not None:
            self._listener.notice(elsewhere)
        for number in self._measurements.ended(event.attempt_id, event.outcome):
            if failure is not None:
                self._end(self._study.fail(number, failure))
            else:
                self._train_with(self._active[number], measurement)

    def _trained(self, active: _Active, outcome: TrialOutcome) -> None:
        number = active.trial.number
        if active.measured_on is not None:
            outcome = replace(outcome, info={**outcome.info, MEASURED_ON: active.measured_on})
        self._study.end_attempt(number, outcome)
        if outcome.failure is None:
            self._keep_loop_table(number, outcome)
            self._end(self._study.complete(number, {**active.known, **outcome.metrics}))
        elif decide(failure_reasons(self._study.trial(number)), self._spec.retry.max_attempts) is Decision.RETRY:
            self._listener.trial_retried(active.trial, outcome.failure.message)
            self._train(active)
        else:
            self._end(self._study.fail(number, outcome.failure, {**active.known, **outcome.metrics}))

    def _keep_loop_table(self, number: int, outcome: TrialOutcome) -> None:
        """Beside the trial's attempts; the trial is as good without it, so a full disk only leaves it out."""
        if outcome.loops:
            try:
                write_aside(self._home.loop_table(self._study.name, number), to_csv(outcome.loops))
            except OSError as error:
                self._listener.notice(f"the loop table of trial {number} is not kept ({error.strerror})")

    def _end(self, trial: TrialRecord) -> None:
        del self._active[trial.number]
        self._ended_now += 1
        if trial.failure is not None:
            self._failures_now[trial.failure["reason"]] += 1
        for attempt in trial.attempts:
            AttemptFolder(self._home.attempt(self._study.name, trial.number, attempt.number)).discard_state()
        if trial.attempts:
            self._discard_stored(trial.number)
        self._tracker.finish_trial(trial)
        self._listener.trial_ended(trial)

    def _release_active(self) -> None:
        """Stop what runs and give the trials back, so that they are the first to go on."""
        for attempt_id in [*self._training, *self._measurements.under_way()]:
            self._backend.stop(attempt_id)
        for number in self._active:
            self._study.release(number)
            self._live.ended(number)
        self._active.clear()
        self._training.clear()
        self._began_training.clear()
        self._heard.clear()
        self._measurements.forget()

    def _finish(self, state: StudyState, message: str) -> StudyRecord:
        self._study.set_state(state, message)
        record = self._study.record()
        self._tracker.finish_study(record)
        self._live.write(now=True)
        self._listener.study_ended(record)
        return record
