"""When a running study will have ended, from how fast its latest trials ended."""

from datetime import datetime, timedelta

from orchestrator.records import StudyRecord, TrialState

_LATEST = 20
"""Trials whose pace counts."""


def expected_end(study: StudyRecord) -> datetime | None:
    """When every configuration of the budget has run with every seed, at the latest.

    None when nobody drives the study or nothing has ended yet. Trials beside each other count by their common pace.
    """
    if study.driver is None:
        return None
    spans = [(trial.ended, trial.started) for trial in study.trials if trial.started and trial.ended and trial.attempts]
    latest = sorted(spans, reverse=True)[:_LATEST]
    if not latest:
        return None
    last = latest[0][0]
    pace = (last - min(started for _, started in latest)).total_seconds() / len(latest)
    return last + timedelta(seconds=pace * _left(study))


def _left(study: StudyRecord) -> int:
    """Trials that may still run."""
    retried = {trial.retries for trial in study.trials}
    finished = sum(1 for trial in study.trials if trial.state.finished and trial.number not in retried)
    waiting = sum(1 for trial in study.trials if trial.state is TrialState.WAITING)
    return max(study.budget * len(study.seeds) - finished, waiting, 0)
