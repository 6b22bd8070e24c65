"""A study: the durable truth about its trials, in an Optuna journal of its own.

One Optuna trial is one configuration with one seed. The driver, under `orchestrator.driver_lock`, is the only writer:
`ask` gives the next trial to run, `start_attempt` and `end_attempt` frame its executions, and `complete`, `fail` or
`infeasible` tells how it ended, once. Whatever the driver was doing when it died, opening the study again continues it:
what was told is never run again, what was running is given back by `orphans`, and the budget counts distinct
configurations over the study's whole life.

Readers need no lock: `read_study` and `list_studies` work while a driver writes. The journal is plain Optuna, so
`optuna.load_study` and optuna-dashboard open it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from statistics import fmean
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, Trial, create_trial

from orchestrator import stored_trial
from orchestrator.configuration import Configuration, resolve
from orchestrator.constraints import violations
from orchestrator.errors import ServiceError, StudyError
from orchestrator.home import Home, valid_name
from orchestrator.journal import create_journal, drop_half_line, open_journal, our_trials, study_record, trial_record
from orchestrator.proposer import Evaluation, Proposer
from orchestrator.records import AttemptRecord, StudyRecord, StudyState, TrialRecord, TrialState
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec
from orchestrator.study_identity import refuse_other_data, refuse_other_study
from workers.protocol import Failure, FailureReason, TrialOutcome

Clock = Callable[[], datetime]

_TELLING = frozenset({FailureReason.DIVERGED.value, FailureReason.GPU_OOM.value})
"""Failures that say something about the configuration, so that the sampler learns to stay away."""


def utc_now() -> datetime:
    """The time, aware that it is UTC."""
    return datetime.now(UTC)


class Study:
    """One study, opened by its driver."""

    def __init__(self, spec: StudySpec, home: Home, storage: JournalStorage, clock: Clock) -> None:
        """For `Study.open`."""
        self.name = spec.name
        self._spec, self._home, self._storage, self._clock = spec, home, storage, clock
        self._id = storage.get_study_id_from_name(spec.name)
        self._study = _load(storage, spec.name)
        self._space = SearchSpace(spec)
        self._proposer = Proposer(spec, self._space)
        self._finished: dict[int, TrialRecord] = {}
        self._left_running = [trial.number for trial in self.trials() if trial.state is TrialState.RUNNING]

    @classmethod
    def open(
        cls, spec: StudySpec, home: Home, *, corpora: Mapping[str, str] | None = None, clock: Clock = utc_now
    ) -> "Study":
        """Create the study, or continue the one of this name; the caller holds its driver lock.

        `corpora` gives the fingerprint of every corpus by name; a study goes on only with the data it began with.

        Raises `StudyError` when it exists and asks another question: other objectives, constraints, search, model,
        data, training, benchmark or sampler, or seeds that do not begin with its own. Any other budget continues it.
        """
        path = home.journal(spec.name)
        refuse_existing(spec, home, corpora or {})
        try:
            if path.exists():
                drop_half_line(path)
            else:
                create_journal(spec, path, clock())
            storage = open_journal(path, spec.name)
            study = _load(storage, spec.name)
            plain = spec.to_plain()
            if study.user_attrs["spec"] != plain:
                study.set_user_attr("spec", plain)
            known: dict[str, str] = study.user_attrs.get("corpora", {})
            if set(corpora or {}) - set(known):
                study.set_user_attr("corpora", {**known, **(corpora or {})})
        except OSError as error:
            raise ServiceError(f"{path} cannot be written ({error.strerror}); make room or set PLT_HOME") from error
        return cls(spec, home, storage, clock)

    def trials(self) -> tuple[TrialRecord, ...]:
        """All trials by number."""
        return tuple(self._record_of(trial) for trial in self._frozen_trials())

    def trial(self, number: int) -> TrialRecord:
        """One trial."""
        return self._record_of(self._storage.get_trial(self._trial_id(number)))

    def record(self) -> StudyRecord:
        """The study with all its trials."""
        return study_record(self._storage, self._home, self.name, self.trials())

    def set_state(self, state: StudyState, message: str) -> None:
        """Write down how the study stands, and why."""
        self._study.set_user_attr("state", {"state": state.value, "message": message})

    def orphans(self) -> list[TrialRecord]:
        """Trials that a killed driver left RUNNING; they go on as their next attempt and are never asked again."""
        left = [self.trial(number) for number in self._left_running]
        return [trial for trial in left if trial.state is TrialState.RUNNING]

    def ask(self) -> TrialRecord | None:
        """The next trial, now RUNNING: one that was given back, else a missing seed, else a new configuration.

        None when there is nothing left to run; `why_exhausted` says why.
        """
        trials = self.trials()
        for trial in trials:
            if trial.state is TrialState.WAITING:
                self._storage.set_trial_state_values(self._trial_id(trial.number), optuna.trial.TrialState.RUNNING)
                return self.trial(trial.number)
        grouped = _by_configuration(trials)
        for replicates in grouped.values():
            seed = self._missing_seed(replicates)
            if seed is not None:
                return self._create_trial(resolve(self._spec, replicates[0].params), seed, {})
        if len(grouped) >= self._spec.budget.configurations:
            return None
        proposal = self._proposer.propose([self._evaluation(replicates) for replicates in grouped.values()])
        if proposal is None:
            return None
        return self._create_trial(proposal.configuration, self._spec.seeds[0], proposal.sampler_state)

    def exhausted(self) -> bool:
        """Whether there is nothing left to run: every trial finished, every seed used, no further configuration."""
        trials = self.trials()
        grouped = _by_configuration(trials)
        spent = len(grouped) >= self._spec.budget.configurations or len(grouped) == self._space.size
        seeded = all(self._missing_seed(replicates) is None for replicates in grouped.values())
        return spent and seeded and all(trial.state.finished for trial in trials)

    def why_exhausted(self) -> str:
        """Why `ask` has nothing more to give."""
        known = len(_by_configuration(self.trials()))
        if self._space.size is not None and known >= self._space.size:
            return f"every point evaluated ({known} configurations)"
        if known >= self._spec.budget.configurations:
            return f"budget spent ({known} configurations)"
        return f"no further configuration found after {known}"

    def start_attempt(self, number: int) -> int:
        """Write down that an execution of a trial begins; returns the attempt's number, from 1."""
        attempts = self.trial(number).attempts
        if attempts and attempts[-1].ended is None:
            lost = Failure(reason=FailureReason.DRIVER_LOST, message="the driver ended before the attempt did")
            self._end(number, attempts[-1], lost, {})
        attempt = AttemptRecord(number=len(attempts) + 1, started=self._clock())
        self._write_attempt(number, attempt)
        return attempt.number

    def end_attempt(self, number: int, outcome: TrialOutcome) -> None:
        """Write down how a trial's latest attempt ended; the trial itself stays RUNNING until it is told."""
        self._end(number, self.trial(number).attempts[-1], outcome.failure, outcome.info)

    def release(self, number: int) -> None:
        """Give a RUNNING trial back: WAITING, and the first to be asked. Its open attempt ends here.

        A trial that was told already stays as it is: an interrupt may come at any moment.
        """
        if self.trial(number).state.finished:
            return
        attempts = self.trial(number).attempts
        if attempts and attempts[-1].ended is None:
            self._end(number, attempts[-1], None, {})
        self._storage.set_trial_state_values(self._trial_id(number), optuna.trial.TrialState.WAITING)

    def complete(self, number: int, metrics: Mapping[str, float]) -> TrialRecord:
        """Tell a trial COMPLETE with its final metrics.

        With a metric that is NaN or infinite, or without the metric of an objective or constraint, it is told FAIL with
        the reason `diverged` instead.
        """
        wrong = self._unusable(metrics)
        if wrong is not None:
            return self.fail(number, Failure(reason=FailureReason.DIVERGED, message=wrong), metrics)
        self._write_judged(number, metrics)
        self._study.tell(number, [metrics[objective.metric] for objective in self._spec.objectives])
        return self.trial(number)

    def infeasible(self, number: int, metrics: Mapping[str, float]) -> TrialRecord:
        """Tell a trial PRUNED: these metrics, known without training, break a constraint."""
        self._write_judged(number, metrics)
        self._study.tell(number, state=optuna.trial.TrialState.PRUNED)
        return self.trial(number)

    def fail(self, number: int, failure: Failure, metrics: Mapping[str, float] | None = None) -> TrialRecord:
        """Tell a trial FAIL, with those of its last known metrics that are finite."""
        finite = {name: value for name, value in (metrics or {}).items() if math.isfinite(value)}
        self._write(number, "result", stored_trial.result(finite, self._clock(), failure))
        self._study.tell(number, state=optuna.trial.TrialState.FAIL)
        return self.trial(number)

    def _frozen_trials(self) -> list[FrozenTrial]:
        return our_trials(self._storage, self._id)

    def _record_of(self, trial: FrozenTrial) -> TrialRecord:
        if trial.number in self._finished:
            return self._finished[trial.number]
        record = trial_record(trial)
        if record.state.finished:
            self._finished[trial.number] = record
        return record

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)

    def _create_trial(self, configuration: Configuration, seed: int, sampler_state: Mapping[str, Any]) -> TrialRecord:
        """One journal entry, so that a trial exists as a whole or not at all."""
        template = create_trial(
            state=optuna.trial.TrialState.RUNNING,
            params=dict(configuration.params),
            distributions=self._space.distributions(configuration.params),
            user_attrs=stored_trial.asked(configuration, seed, sampler_state),
        )
        return self._record_of(self._storage.get_trial(self._storage.create_new_trial(self._id, template)))

    def _missing_seed(self, replicates: Sequence[TrialRecord]) -> int | None:
        """The first seed that a configuration was not run with; what breaks a constraint beforehand needs no more."""
        if any(trial.state is TrialState.PRUNED for trial in replicates):
            return None
        used = {trial.seed for trial in replicates}
        return next((seed for seed in self._spec.seeds if seed not in used), None)

    def _evaluation(self, replicates: Sequence[TrialRecord]) -> Evaluation:
        complete = [trial for trial in replicates if trial.state is TrialState.COMPLETE]
        judged = complete or [trial for trial in replicates if trial.state is TrialState.PRUNED]
        reasons = {trial.failure["reason"] if trial.failure else "" for trial in replicates}
        first = self._storage.get_trial(self._trial_id(replicates[0].number))
        return Evaluation(
            fingerprint=replicates[0].configuration,
            params=replicates[0].params,
            values=_means([trial.values or () for trial in complete]) if complete else None,
            violations={"failed": 1.0} if reasons <= _TELLING else _mean_violations(judged),
            running=not complete and any(not trial.state.finished for trial in replicates),
            sampler_state=first.user_attrs["sampler"],
        )

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
            if name not in trial.constraints:
                trial.set_constraint(name, amount)

    def _end(self, number: int, attempt: AttemptRecord, failure: Failure | None, info: Mapping[str, Any]) -> None:
        plain = None if failure is None else stored_trial.failure_to_plain(failure)
        self._write_attempt(number, replace(attempt, ended=self._clock(), failure=plain, info=info))

    def _write_attempt(self, number: int, attempt: AttemptRecord) -> None:
        self._write(number, stored_trial.attempt_key(attempt.number), stored_trial.attempt_to_plain(attempt))

    def _write(self, number: int, attribute: str, value: Mapping[str, Any]) -> None:
        self._storage.set_trial_user_attr(self._trial_id(number), attribute, value)


def refuse_existing(spec: StudySpec, home: Home, corpora: Mapping[str, str]) -> None:
    """Raise a `StudyError` when a study of this name exists that `spec` cannot continue; changes nothing."""
    path = home.journal(spec.name)
    if not path.exists():
        return
    storage = open_journal(path, spec.name)
    attributes = storage.get_study_user_attrs(storage.get_study_id_from_name(spec.name))
    refuse_other_study(attributes["spec"], spec.to_plain(), str(path.parent))
    refuse_other_data(spec.name, attributes.get("corpora", {}), corpora)


def read_study(home: Home, name: str) -> StudyRecord:
    """A study as it stands, also while a driver writes; a `StudyError` names the closest ones when there is none."""
    path = home.journal(name)
    if not path.exists():
        known = list_studies(home)
        near = get_close_matches(name, known, n=3) or known[:3]
        remedy = f"did you mean {' or '.join(near)}?" if near else "there are none yet; start one with `plt run`"
        raise StudyError(f"there is no study {name!r} in {home.root}; {remedy}")
    storage = open_journal(path, name)
    trials = tuple(trial_record(trial) for trial in our_trials(storage, storage.get_study_id_from_name(name)))
    return study_record(storage, home, name, trials)


def list_studies(home: Home) -> list[str]:
    """Names of all studies, in alphabetical order."""
    names = (path.parent.name for path in home.studies.glob("*/optuna.journal"))
    return sorted(name for name in names if valid_name(name))


def _load(storage: JournalStorage, name: str) -> optuna.Study:
    return optuna.load_study(study_name=name, storage=storage, sampler=optuna.samplers.RandomSampler())


def _by_configuration(trials: Sequence[TrialRecord]) -> dict[str, list[TrialRecord]]:
    grouped: dict[str, list[TrialRecord]] = {}
    for trial in trials:
        grouped.setdefault(trial.configuration, []).append(trial)
    return grouped


def _mean_violations(trials: Sequence[TrialRecord]) -> dict[str, float]:
    names = trials[0].violations if trials else ()
    return {name: fmean(trial.violations[name] for trial in trials) for name in names}


def _means(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(fmean(column) for column in zip(*rows, strict=True))
