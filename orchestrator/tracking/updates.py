"""What a tracker says when a study or trial starts or ends: pure functions from records to run updates.

Every tracker says these, so that all of them show the same. The time is when it is said, in milliseconds since the
epoch. A trial or study that ended may be said again and again; it stays one run.
"""

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.export import study_summary
from orchestrator.records import StudyRecord, TrialRecord
from orchestrator.tracking import projection
from orchestrator.tracking.entry import RunUpdate
from orchestrator.tracking.provenance import provenance_tags
from orchestrator.tracking.tracked_run import RunStatus

_LONGEST_PARAM, _LONGEST_TAG = 6000, 8000
"""Characters that MLflow keeps. It drops the rest without a word, and then what it has never equals what was said."""


def trial_started(trial: TrialRecord, time: int) -> RunUpdate:
    """A trial begins or goes on, at a time in milliseconds."""
    return _trial_update(trial, time, RunStatus.RUNNING)


def trial_ended(trial: TrialRecord, time: int, loop_table: str | None = None) -> RunUpdate:
    """A trial no longer runs: its final metrics, state, loop diagnostics, and the traceback of a failure."""
    texts = {"loops.csv": loop_table, "traceback.txt": (trial.failure or {}).get("traceback")}
    return _trial_update(
        trial,
        time,
        projection.end_status(trial),
        ended=projection.milliseconds(trial.ended) or time,
        tags=_cut(projection.outcome_tags(trial), _LONGEST_TAG),
        metrics=projection.final_metrics(trial),
        texts={name: text for name, text in texts.items() if text},
    )


def study_started(study: StudyRecord, time: int) -> RunUpdate:
    """The study begins or goes on; the resolved spec is an artifact, because parameters have a longest length."""
    return _study_update(study, time, RunStatus.RUNNING, texts={"spec.json": _text(study.spec)})


def study_ended(study: StudyRecord, time: int) -> RunUpdate:
    """The study no longer runs: how it stands, and the front."""
    return _study_update(
        study,
        time,
        projection.study_status(study),
        ended=time,
        metrics=projection.study_metrics(study),
        texts={"summary.json": _text(study_summary(study))},
    )


def _trial_update(trial: TrialRecord, time: int, status: RunStatus, **changes: Any) -> RunUpdate:
    return RunUpdate(
        number=trial.number,
        time=time,
        status=status,
        name=projection.run_name(trial.number),
        started=projection.milliseconds(trial.started) or time,
        identity=projection.identity_tags(trial),
        origin=provenance_tags(),
        params=_cut(projection.trial_params(trial), _LONGEST_PARAM),
        **changes,
    )


def _study_update(study: StudyRecord, time: int, status: RunStatus, **changes: Any) -> RunUpdate:
    return RunUpdate(
        number=None,
        time=time,
        status=status,
        name=study.name,
        started=projection.milliseconds(study.created) or time,
        identity={projection.KIND: "study"},
        origin=provenance_tags(),
        tags=_cut(projection.study_tags(study), _LONGEST_TAG),
        **changes,
    )


def _cut(values: Mapping[str, str], length: int) -> dict[str, str]:
    return {name: value[:length] for name, value in values.items()}


def _text(data: Mapping[str, Any]) -> str:
    return json.dumps(dict(data), indent=2)
