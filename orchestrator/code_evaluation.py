"""Scores the code that a finished trial's model writes, in a process of its own: torch stays out of this one."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.checkpoint_copies import fetch_model
from orchestrator.configuration import resolve
from orchestrator.errors import ServiceError, StudyError
from orchestrator.home import Home
from orchestrator.studies import read_spec, read_study
from orchestrator.trial_name import find_trial, parse_trial_name
from workers.attempt_folder import AttemptFolder


def evaluate_code(home: Home, name: str, options: Sequence[str]) -> Mapping[str, float]:
    """Metrics of trial STUDY/NUMBER; `options` are those of `python -m workers.code.report`."""
    study, number = parse_trial_name(name)
    record = find_trial(read_study(home, study), number)
    data = resolve(read_spec(home, study)[0], record.params).data
    if data.text is None:
        raise StudyError(f"trial {name} was trained on {data.corpus}, which has no text: it writes no code")
    fixed = ["--data", json.dumps(data.to_dict()), "--data-folder", str(home.data)]
    done = subprocess.run(
        [sys.executable, "-m", "workers.code.report", str(_model_of(home, study, number)), *fixed, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise ServiceError(f"the code of trial {name} could not be scored: {said}")
    metrics: dict[str, float] = json.loads(done.stdout)
    return metrics


def _model_of(home: Home, study: str, number: int) -> Path:
    """The model that the trial's latest finished attempt has left."""
    attempts = [each for each in find_trial(read_study(home, study), number).attempts if each.ended is not None]
    for attempt in reversed(attempts):
        fetch_model(home, study, number, attempt.number)
        model = AttemptFolder(home.attempt(study, number, attempt.number)).model
        if model.exists():
            return model
    raise StudyError(f"trial {study}/{number} has left no model; only a trial that was trained to its end has one")
