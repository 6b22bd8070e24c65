"""What of a study or trial goes into a tracked run: pure functions from records to parameters, tags, metrics and
status.

Every tracker uses them, so that all of them show the same. Not finite numbers never leave as final metrics, because
MLflow's databases turn infinity into 1.8e308; in a training curve they become NaN, a gap.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from orchestrator.records import StudyRecord, StudyState, TrialRecord, TrialState
from orchestrator.tracking.tracked_run import RunStatus
from workers.protocol import MetricReport

KIND = "plt.kind"
"""Tag: `study` for a parent run, `trial` for a child."""
STUDY = "plt.study_created"
"""When the study was created: tells it from an earlier one of the same name."""
NUMBER = "plt.trial"
CONFIGURATION = "plt.configuration"
SEED = "plt.seed"
STATE = "plt.state"
"""Tag: Optuna's state of a trial that ended, or the study's state."""
CURVES = "plt.curves"
"""Tag: names of the metrics that were reported during training, joined by commas."""
TOKENS = "progress/tokens"
"""Metric beside every report: training tokens seen."""
SECONDS = "progress/seconds"
"""Metric beside every report: wall time since the attempt began."""

_STATUS = {
    TrialState.COMPLETE: RunStatus.FINISHED,
    TrialState.PRUNED: RunStatus.FINISHED,
    TrialState.FAIL: RunStatus.FAILED,
    TrialState.RUNNING: RunStatus.KILLED,
    TrialState.WAITING: RunStatus.KILLED,
}
_STUDY_STATUS = {StudyState.COMPLETE: RunStatus.FINISHED, StudyState.INTERRUPTED: RunStatus.KILLED}


def end_status(trial: TrialRecord) -> RunStatus:
    """How the run of a trial that no longer runs ends; one that was interrupted ends as KILLED."""
    return _STATUS[trial.state]


def study_status(study: StudyRecord) -> RunStatus:
    """How the parent run of a study that no longer runs ends."""
    return _STUDY_STATUS.get(study.state, RunStatus.FAILED)


def run_name(number: int) -> str:
    """The run's name in the tracking system."""
    return f"trial-{number}"


def trial_params(trial: TrialRecord) -> dict[str, str]:
    """The resolved configuration, its fingerprint and the seed; settings that do not apply are left out."""
    knobs = {**trial.knobs, **trial.params, "seed": trial.seed, "configuration": trial.configuration}
    return {name: str(value) for name, value in knobs.items() if value is not None}


def identity_tags(trial: TrialRecord) -> dict[str, str]:
    """Tags by which a trial's run is found again."""
    return {
        KIND: "trial",
        NUMBER: str(trial.number),
        CONFIGURATION: trial.configuration,
        SEED: str(trial.seed),
    }


def outcome_tags(trial: TrialRecord) -> dict[str, str]:
    """Optuna's state, attempts, feasibility, why it failed, and the facts that the last attempt sent."""
    tags = {STATE: trial.state.value, "plt.feasible": str(trial.feasible).lower()}
    if trial.attempts:
        tags["plt.attempt"] = str(trial.attempts[-1].number)
        tags |= {f"info.{name}": str(value) for name, value in _flat(trial.attempts[-1].info).items()}
    failure = trial.failure or {}
    return tags | {"plt.failure.reason": failure.get("reason", ""), "plt.failure.message": failure.get("message", "")}


def report_metrics(report: MetricReport) -> dict[str, float]:
    """A report's metrics, with tokens and seconds beside them; values that are not finite become NaN."""
    metrics = {name: value if math.isfinite(value) else math.nan for name, value in report.metrics.items()}
    return {**metrics, TOKENS: float(report.tokens), SECONDS: float(report.seconds)}


def final_metrics(trial: TrialRecord) -> dict[str, float]:
    """A trial's final metrics, the finite ones."""
    return {name: value for name, value in trial.metrics.items() if math.isfinite(value)}


def study_tags(study: StudyRecord) -> dict[str, str]:
    """What was asked and how it stands, for the parent run; tags, because a budget may grow and a parameter may not."""
    return {
        "plt.objectives": ", ".join(f"{objective.direction} {objective.metric}" for objective in study.objectives),
        "plt.constraints": ", ".join(study.constraints),
        "plt.search": ", ".join(study.search),
        "plt.seeds": ", ".join(str(seed) for seed in study.seeds),
        "plt.budget": str(study.budget),
        STATE: study.state.value,
        "plt.message": study.message,
        "mlflow.note.content": study.question,
    }


def study_metrics(study: StudyRecord) -> dict[str, float]:
    """Counts: configurations evaluated, and trials by state."""
    states = [trial.state for trial in study.trials]
    evaluated = {trial.configuration for trial in study.trials if trial.state.finished}
    counts = {f"trials/{state.lower()}": float(states.count(state)) for state in TrialState}
    return {"configurations": float(len(evaluated)), **counts}


def milliseconds(moment: datetime | None) -> int | None:
    """Milliseconds since the epoch, MLflow's unit of time."""
    return None if moment is None else round(moment.timestamp() * 1000)


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
