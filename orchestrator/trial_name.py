"""Trials by the name that people give: `STUDY/NUMBER`."""

from orchestrator.errors import StudyError
from orchestrator.records import StudyRecord, TrialRecord


def parse_trial_name(name: str) -> tuple[str, int]:
    """The study's name and the trial's number; a `StudyError` shows how to write it."""
    study, slash, number = name.rpartition("/")
    if not slash or not (number.isascii() and number.isdigit()) or len(number) > 18:
        raise StudyError(f"{name!r} names no trial; write STUDY/NUMBER, for instance quickstart/3")
    return study, int(number)


def find_trial(study: StudyRecord, number: int) -> TrialRecord:
    """The trial of this number; a `StudyError` says which there are."""
    for trial in study.trials:
        if trial.number == number:
            return trial
    raise StudyError(f"study {study.name} has no trial {number}; it has {len(study.trials)}, numbered from 0")
