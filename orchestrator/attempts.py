"""What a trial's next attempt asks of a worker."""

from orchestrator.configuration import Configuration
from orchestrator.home import Home
from orchestrator.policy import halvings
from orchestrator.records import TrialRecord
from orchestrator.spec import StudySpec
from orchestrator.spec.metrics import evaluated
from workers.protocol import Direction, FailureReason, Gang, TrialRequest


def trial_request(
    spec: StudySpec, trial: TrialRecord, configuration: Configuration, home: Home, rungs: tuple[int, ...]
) -> TrialRequest:
    """The request of the trial's latest attempt: it goes on from the checkpoints of the earlier ones."""
    trials = home.stored_trials(spec.name)
    *earlier, latest = [str(home.attempt(spec.name, trial.number, attempt.number)) for attempt in trial.attempts]
    return TrialRequest(
        attempt_id=f"trial-{trial.number}-attempt-{trial.attempts[-1].number}",
        model=configuration.model,
        data=configuration.data,
        train=configuration.train,
        seed=trial.seed,
        initial=configuration.initial,
        data_folder=str(home.data),
        folder=latest,
        resume_from=tuple(reversed(earlier)),
        store=None if trials is None else f"{trials}/{trial.number}",
        evaluate_at=rungs,
        halvings=halvings(failure_reasons(trial)),
        best_by=_best_by(spec),
        threads=spec.resources.train.threads,
        gang=_gang(spec),
        probe_sequences=spec.diagnostics.sequences,
    )


def _gang(spec: StudySpec) -> Gang | None:
    resources = spec.resources
    if resources.workers_per_trial == 1:
        return None
    return Gang(workers=resources.workers_per_trial, parallel=resources.parallel or "ddp")


def failure_reasons(trial: TrialRecord) -> list[FailureReason]:
    """Why the trial's attempts failed, in their order; those that an interrupt ended did not fail."""
    return [FailureReason(attempt.failure["reason"]) for attempt in trial.attempts if attempt.failure is not None]


def _best_by(spec: StudySpec) -> tuple[str, Direction] | None:
    """The first objective that an evaluation measures."""
    judged = (one for one in spec.objectives if evaluated(one.metric))
    return next(((one.metric, one.direction) for one in judged), None)
