"""Trials and studies as plain data and files, for programs and notebooks."""

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from orchestrator.configurations import group
from orchestrator.errors import ServiceError
from orchestrator.latency_devices import latency_devices
from orchestrator.records import StudyRecord, TrialRecord, TrialState


def trial_to_plain(trial: TrialRecord) -> dict[str, Any]:
    """Everything known of a trial, JSON-ready: times as ISO 8601 in UTC."""
    data = asdict(trial)
    data["state"] = trial.state.value
    data["values"] = list(trial.values) if trial.values is not None else None
    data["attempts"] = [_attempt_to_plain(attempt) for attempt in data["attempts"]]
    data["started"], data["ended"] = _time(trial.started), _time(trial.ended)
    return data


def study_summary(study: StudyRecord) -> dict[str, Any]:
    """How a study stands: counts, failures by reason and the front."""
    states = Counter(trial.state.value for trial in study.trials)
    configurations = group(study)
    return {
        "name": study.name,
        "question": study.question,
        "state": study.state.value,
        "message": study.message,
        "driver": study.driver,
        "created": _time(study.created),
        "objectives": [asdict(objective) for objective in study.objectives],
        "configurations": len(configurations),
        "budget": study.budget,
        "trials": {state.value: states.get(state.value, 0) for state in TrialState},
        "failures": dict(Counter(trial.failure["reason"] for trial in study.trials if trial.failure)),
        "latency_devices": latency_devices(study),
        "front": [
            {
                "configuration": configuration.fingerprint,
                "params": dict(configuration.params),
                "trials": [trial.number for trial in configuration.trials],
                "metrics": {name: asdict(interval) for name, interval in configuration.metrics.items()},
            }
            for configuration in configurations
            if configuration.on_front
        ],
    }


def export_trials(study: StudyRecord, file_format: str, output: Path | None) -> None:
    """Write every trial as a JSON list, or one row per trial as CSV or Parquet."""
    payload = exported(study, file_format)
    if output is None:
        sys.stdout.buffer.write(payload)
        return
    try:
        output.write_bytes(payload)
    except OSError as error:
        raise ServiceError(
            f"cannot write {output} ({error.strerror}); give --output a path that you may write"
        ) from None


def exported(study: StudyRecord, file_format: str) -> bytes:
    """The file: `json`, `csv` or `parquet`."""
    if file_format == "json":
        return (json.dumps([trial_to_plain(trial) for trial in study.trials], indent=2) + "\n").encode()
    return _csv(study).encode() if file_format == "csv" else _parquet(study)


def trial_rows(study: StudyRecord) -> list[dict[str, Any]]:
    """One flat row per trial: `params.NAME` and `metrics.NAME` columns, the same columns in every row."""
    params = sorted({name for trial in study.trials for name in trial.params})
    metrics = sorted({name for trial in study.trials for name in trial.metrics})
    return [
        {
            "number": trial.number,
            "state": trial.state.value,
            "seed": trial.seed,
            "configuration": trial.configuration,
            "feasible": trial.feasible,
            "attempts": len(trial.attempts),
            "failure": trial.failure["reason"] if trial.failure else None,
            "started": _time(trial.started),
            "ended": _time(trial.ended),
            **{f"params.{name}": _scalar(trial.params.get(name)) for name in params},
            **{f"metrics.{name}": trial.metrics.get(name) for name in metrics},
        }
        for trial in study.trials
    ]


def _csv(study: StudyRecord) -> str:
    rows = trial_rows(study)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else ["number"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _parquet(study: StudyRecord) -> bytes:
    import pyarrow
    import pyarrow.parquet

    rows = trial_rows(study)
    for name in {name for row in rows for name in row if name.startswith("params.")}:
        kinds = {type(row[name]) for row in rows if row[name] is not None}
        if len(kinds) > 1:  # a column has one type: mixed choices such as `learned` and 0.5 become text
            for row in rows:
                row[name] = None if row[name] is None else str(row[name])
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def _attempt_to_plain(attempt: dict[str, Any]) -> dict[str, Any]:
    return {**attempt, "started": _time(attempt["started"]), "ended": _time(attempt["ended"])}


def _time(value: datetime | None) -> str | None:
    return value.isoformat() if value is not None else None


def _scalar(value: Any) -> Any:
    return value if not isinstance(value, Mapping | list | tuple) else json.dumps(value)
