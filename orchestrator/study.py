"""A study: the durable truth about its trials, in an Optuna journal of its own.

One Optuna trial is one configuration with one seed. The driver, under `orchestrator.driver_lock`, is the only writer of
trials: `ask` gives the next one to run, `start_attempt` and `end_attempt` frame its executions, `judge` writes down
what the pruner said, and `complete`, `prune` or `fail` tells how it ended, once. Whatever the driver was doing when it
died, opening the study again continues it: what was told is never run again, what was running is given back by
`orphans`, and the budget counts distinct configurations over the study's whole life.

Readers need no lock: `orchestrator.studies` reads while a driver writes. The journal is plain Optuna, so
`optuna.load_study` and optuna-dashboard open it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

import optuna
from optuna.storages import JournalStorage
from optuna.trial import Trial, create_trial

from orchestrator import stored_trial
from orchestrator.ask_ahead import AskAhead
from orchestrator.configuration import Configuration, resolve
from orchestrator.constraints import violations
from orchestrator.errors import ServiceError
from orchestrator.home import Home
from orchestrator.journal import create_journal, open_journal, our_trials, study_record, trial_record
from orchestrator.journal_store import Trouble, give_up, journals
from orchestrator.knowledge import Knowledge
from orchestrator.proposer import Proposer
from orchestrator.records import AttemptRecord, RungRecord, StudyRecord, StudyState, TrialRecord, TrialState
from orchestrator.requests import Request, answer_to_plain, pending
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec
from orchestrator.studies import refuse_existing
from orchestrator.trial_table import TrialTable
from workers.protocol import Failure, FailureReason, TrialOutcome

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The time, aware that it is UTC."""
    return datetime.now(UTC)


class Study:
    """One study, opened by its driver."""

    def __init__(
        self, spec: StudySpec, home: Home, storage: JournalStorage, clock: Clock, ahead: int, last_sign: datetime
    ) -> None:
        """For `Study.open`."""
        self.name = spec.name
        self._spec, self._home, self._storage, self._clock = spec, home, storage, clock
        self._id = storage.get_study_id_from_name(spec.name)
        self._study = _load(storage, spec.name)
        self._space = SearchSpace(spec)
        self._table = TrialTable(trial_record(trial) for trial in our_trials(storage, self._id))
        self._left_running = [trial.number for trial in self.trials() if trial.state is TrialState.RUNNING]
        proposer = Proposer(spec, self._space)
        self.notice = proposer.notice
        """What a person should know about the sampler on this study, in one line, or None."""
        self._proposals = AskAhead(proposer, depth=ahead)
        self._knowledge = Knowledge(spec, self._table)
        self._no_more_points = False
        self._last_sign = last_sign

    @classmethod
    def open(
        cls,
        spec: StudySpec,
        home: Home,
        *,
        corpora: Mapping[str, str] | None = None,
        clock: Clock = utc_now,
        ahead: int = 0,
        on_trouble: Trouble = give_up,
    ) -> Self:
        """Create the study, or continue the one of this name; the caller holds its driver lock.

        `corpora` gives the fingerprint of every corpus by name; a study goes on only with the data it began with. So
        many proposals are prepared `ahead` in the background; with 0 each is made when it is asked for, which is
        repeatable. `on_trouble` is asked about every write that fails.

        Raises `StudyError` when it exists and asks another question: other objectives, constraints, search, model,
        data, training, benchmark or sampler, or seeds that do not begin with its own. Any other budget continues it.
        """
        store = journals(home)
        refuse_existing(spec, home, corpora or {})
        try:
            if not store.exists(spec.name):
                create_journal(spec, home, clock())
            last_sign = _last_sign_of_life(home, spec.name)
            storage = open_journal(home, spec.name, on_trouble, driving=True)
            study = _load(storage, spec.name)
            plain = spec.to_plain()
            if study.user_attrs["spec"] != plain:
                study.set_user_attr("spec", plain)
            known: dict[str, str] = study.user_attrs.get("corpora", {})
            if set(corpora or {}) - set(known):
                study.set_user_attr("corpora", {**known, **(corpora or {})})
        except ServiceError:
            raise
        except OSError as error:
            place = store.place(spec.name)
            raise ServiceError(f"{place} cannot be written ({error.strerror}); make room or set PLT_HOME") from error
        return cls(spec, home, storage, clock, ahead, last_sign)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop preparing proposals; what was not taken is forgotten and nowhere written."""
        self._proposals.close()

    def trials(self) -> tuple[TrialRecord, ...]:
        """All trials by number."""
        return self._table.all()

    def trial(self, number: int) -> TrialRecord:
        """One trial."""
        return self._table[number]

    def record(self) -> StudyRecord:
        """The study with all its trials."""
        return study_record(self._storage.get_study_user_attrs(self._id), self._home, self.name, self.trials())

    def set_state(self, state: StudyState, message: str) -> None:
        """Write down how the study stands, and why."""
        self._study.set_user_attr("state", {"state": state.value, "message": message})

    def set_budget(self, configurations: int) -> None:
        """Allow so many configurations over the study's whole life from now on."""
        budget = self._spec.budget.model_copy(update={"configurations": configurations})
        self._spec = self._spec.model_copy(update={"budget": budget})
        self._no_more_points = False
        self._proposals.close()
        self._proposals = AskAhead(Proposer(self._spec, self._space), depth=self._proposals.depth)
        self._study.set_user_attr("spec", self._spec.to_plain())

    def requests(self) -> list[Request]:
        """What others have asked of the driver and it has not answered yet, the oldest first."""
        return pending(self._storage.get_study_user_attrs(self._id))

    def answer(self, request: Request, message: str) -> None:
        """Acknowledge a request, with what came of it."""
        self._study.set_user_attr(*answer_to_plain(request, message, self._clock()))

    def orphans(self) -> list[TrialRecord]:
        """Trials that a killed driver left RUNNING; they go on as their next attempt and are never asked again."""
        left = [self.trial(number) for number in self._left_running]
        return [trial for trial in left if trial.state is TrialState.RUNNING]

    def ask(self) -> TrialRecord | None:
        """The next trial, now RUNNING: one that was given back, else a new configuration, else a seed worth having.

        None when there is nothing to run now; when no trial runs either, `why_exhausted` says why.
        """
        waiting = self._table.first_waiting()
        if waiting is not None:
            self._storage.set_trial_state_values(self._trial_id(waiting.number), optuna.trial.TrialState.RUNNING)
            return self._refreshed(waiting.number)
        if len(self._table.configurations) < self._spec.budget.configurations and not self._no_more_points:
            self._proposals.update(self._knowledge.evaluations())
            proposal = self._proposals.take()
            if proposal is not None:
                noted = {"proposed_by": proposal.sampler, "sampler": dict(proposal.sampler_state)}
                return self._create(proposal.configuration, self._spec.seeds[0], noted)
            self._no_more_points = True
        replicate = self._knowledge.next_replicate()
        if replicate is None:
            return None
        like, seed = replicate
        return self._create(resolve(self._spec, like.params), seed, {})

    def why_exhausted(self) -> str:
        """Why `ask` has nothing more to give."""
        known = len(self._table.configurations)
        if self._space.size is not None and known >= self._space.size:
            why = f"every point tried ({known} configurations"
        elif known >= self._spec.budget.configurations:
            why = f"budget spent ({known} configurations"
        else:
            why = f"no further configuration found after ({known}"
        fewer = self._knowledge.with_fewer_seeds()
        because = "out of the answer" if self._spec.replicate == "answer" else "clearly dominated"
        return why + (f"; {fewer} {because}, with fewer seeds)" if fewer else ")")

    def device_seconds(self) -> float:
        """What all ended attempts of the study's whole life have cost."""
        return self._table.ended_device_seconds

    def start_attempt(self, number: int, devices: float = 1.0) -> int:
        """Write down that an execution of a trial begins on so many devices; returns the attempt's number, from 1."""
        attempts = self.trial(number).attempts
        if attempts and attempts[-1].ended is None:
            lost = Failure(reason=FailureReason.DRIVER_LOST, message="the driver ended before the attempt did")
            ended = min(max(attempts[-1].started, self._last_sign), self._clock())
            self._end(number, attempts[-1], lost, {}, ended)
        attempt = AttemptRecord(number=len(attempts) + 1, started=self._clock(), devices=devices)
        self._write_attempt(number, attempt)
        return attempt.number

    def end_attempt(self, number: int, outcome: TrialOutcome) -> None:
        """Write down how a trial's latest attempt ended; the trial itself stays RUNNING until it is told."""
        self._end(number, self.trial(number).attempts[-1], outcome.failure, outcome.info, self._clock())

    def release(self, number: int) -> None:
        """Give a RUNNING trial back: WAITING, and the first to be asked. Its open attempt ends here.

        A trial that was told already stays as it is: an interrupt may come at any moment.
        """
        trial = self.trial(number)
        if trial.state.finished:
            return
        if trial.attempts and trial.attempts[-1].ended is None:
            self._end(number, trial.attempts[-1], None, {}, self._clock())
        self._storage.set_trial_state_values(self._trial_id(number), optuna.trial.TrialState.WAITING)
        self._refreshed(number)

    def judged_at(self, tokens: int) -> list[TrialRecord]:
        """Trials that were judged at a rung, in the order of their judgements."""
        return self._table.judged_at(tokens)

    def judge(self, number: int, tokens: int, metrics: Mapping[str, float], *, kept: bool) -> TrialRecord:
        """Write down how a trial stood at a rung, and whether it goes on."""
        rung = RungRecord(tokens=tokens, metrics=dict(metrics), order=self._table.judgements, kept=kept)
        self._write(number, stored_trial.rung_key(tokens), stored_trial.rung_to_plain(rung))
        return self._refreshed(number)

    def complete(self, number: int, metrics: Mapping[str, float]) -> TrialRecord:
        """Tell a trial COMPLETE with its final metrics.

        With a metric that is NaN or infinite, or without the metric of an objective or constraint, it is told FAIL with
        the reason `diverged` instead.
        """
        wrong = self._unusable(metrics)
        if wrong is not None:
            return self.fail(number, Failure(reason=FailureReason.DIVERGED, message=wrong), metrics)
        self._write_judged(number, metrics)
        self._study.tell(number, self._values(metrics))
        return self._refreshed(number)

    def prune(self, number: int, metrics: Mapping[str, float]) -> TrialRecord:
        """Tell a trial PRUNED with its last values: they break a constraint, or the pruner stopped it."""
        self._write_judged(number, metrics)
        self._study.tell(number, state=optuna.trial.TrialState.PRUNED)
        return self._refreshed(number)

    def fail(self, number: int, failure: Failure, metrics: Mapping[str, float] | None = None) -> TrialRecord:
        """Tell a trial FAIL, with those of its last known metrics that are finite."""
        finite = {name: value for name, value in (metrics or {}).items() if math.isfinite(value)}
        self._write(number, "result", stored_trial.result(finite, self._clock(), failure))
        self._study.tell(number, state=optuna.trial.TrialState.FAIL)
        return self._refreshed(number)

    def retry_failed(self) -> list[TrialRecord]:
        """Have every failed trial tried again, as a new WAITING trial of the same configuration and seed."""
        waiting = optuna.trial.TrialState.WAITING
        return [
            self._create(resolve(self._spec, trial.params), trial.seed, {"retries": trial.number}, state=waiting)
            for trial in self._table.failed()
        ]

    def adopt(self, configuration: Configuration, seed: int, metrics: Mapping[str, float], source: str) -> TrialRecord:
        """Take over a COMPLETE trial from another study: the same configuration and seed give the same result."""
        return self._create(
            configuration,
            seed,
            {"forked_from": source, "result": stored_trial.result(metrics, self._clock())},
            state=optuna.trial.TrialState.COMPLETE,
            values=self._values(metrics),
            constraints=violations(self._spec.constraints, metrics),
        )

    def _values(self, metrics: Mapping[str, float]) -> list[float]:
        return [metrics[objective.metric] for objective in self._spec.objectives]

    def _refreshed(self, number: int) -> TrialRecord:
        """The trial as the storage now has it."""
        record = trial_record(self._storage.get_trial(self._trial_id(number)))
        self._table.put(record)
        self._knowledge.changed(record.configuration)
        return record

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)

    def _create(
        self,
        configuration: Configuration,
        seed: int,
        attributes: Mapping[str, Any],
        *,
        state: optuna.trial.TrialState = optuna.trial.TrialState.RUNNING,
        **template: Any,
    ) -> TrialRecord:
        """One journal entry, so that a trial exists as a whole or not at all."""
        trial = create_trial(
            state=state,
            params=dict(configuration.params),
            distributions=self._space.distributions(configuration.params),
            user_attrs={**stored_trial.asked(configuration, seed), **attributes},
            **template,
        )
        return self._refreshed(self._storage.get_trial(self._storage.create_new_trial(self._id, trial)).number)

    def _unusable(self, metrics: Mapping[str, float]) -> str | None:
        needed = [objective.metric for objective in self._spec.objectives]
        missing = [metric for metric in needed if metric not in metrics]
        judged = violations(self._spec.constraints, metrics)
        missing += [text for text in self._spec.constraints if text not in judged]
        if missing:
            return f"the trial ended without a value for {', '.join(missing)}"
        wrong = [f"{name} is {value}" for name, value in metrics.items() if not math.isfinite(value)]
        return ", ".join(wrong) or None

    def _write_judged(self, number: int, metrics: Mapping[str, float]) -> None:
        self._write(number, "result", stored_trial.result(metrics, self._clock()))
        trial = Trial(self._study, self._trial_id(number))
        for name, amount in violations(self._spec.constraints, metrics).items():
            if trial.constraints.get(name) != amount:
                trial.set_constraint(name, amount)

    def _end(
        self, number: int, attempt: AttemptRecord, failure: Failure | None, info: Mapping[str, Any], ended: datetime
    ) -> None:
        plain = None if failure is None else stored_trial.failure_to_plain(failure)
        self._write_attempt(number, replace(attempt, ended=ended, failure=plain, info=info))

    def _write_attempt(self, number: int, attempt: AttemptRecord) -> None:
        self._write(number, stored_trial.attempt_key(attempt.number), stored_trial.attempt_to_plain(attempt))
        self._refreshed(number)

    def _write(self, number: int, attribute: str, value: Mapping[str, Any]) -> None:
        self._storage.set_trial_user_attr(self._trial_id(number), attribute, value)


def _last_sign_of_life(home: Home, name: str) -> datetime:
    """When the last driver was last known to live: what a lost attempt has cost ends there."""
    standing, live = journals(home).standing(name), home.live(name)
    signs = [datetime.fromtimestamp(live.stat().st_mtime, UTC)] if live.exists() else []
    return max([standing.written, *signs] if standing else signs)


def _load(storage: JournalStorage, name: str) -> optuna.Study:
    return optuna.load_study(study_name=name, storage=storage, sampler=optuna.samplers.RandomSampler())
