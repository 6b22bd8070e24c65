"""The models that a command can be given: a trial, by its name, or a checkpoint folder; and what is known of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.checkpoint_copies import fetch_model
from orchestrator.errors import StudyError
from orchestrator.home import Home
from orchestrator.records import AttemptRecord, TrialRecord
from orchestrator.studies import read_study
from orchestrator.trial_name import find_trial, parse_trial_name
from workers.attempt_folder import AttemptFolder
from workers.config import DataConfig
from workers.interop.model_card import Origin


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """One model."""

    folder: Path
    """Its checkpoint."""
    origin: Origin
    tokenizer: str | None
    """The text of the tokenizer that the trial was trained with, where it still lies in the home."""
    tokenizer_folder: Path
    """Where tokenizer files lie that the model came with."""


def find_model(home: Home, name: str, *, best: bool = False) -> ModelSource:
    """The model of `STUDY/NUMBER`, or in a folder; with `best` the one of the trial's best evaluation.

    A `StudyError` says what there is instead.
    """
    if (Path(name) / "config.json").is_file():
        if best:
            raise StudyError(f"--best chooses among the models of a trial, and {name} is a folder; leave it out")
        return ModelSource(folder=Path(name), origin=Origin(), tokenizer=None, tokenizer_folder=Path(name))
    if Path(name).is_dir():
        raise StudyError(f"{name} holds no config.json; give a checkpoint folder, or a trial as STUDY/NUMBER")
    study_name, number = parse_trial_name(name)
    study = read_study(home, study_name)
    trial = find_trial(study, number)
    attempt, folder = _kept(home, study_name, trial, best=best)
    data = attempt.info.get("data", {})
    foreign = DataConfig(vocab=data.get("vocab", "bytes")).tokenizer
    return ModelSource(
        folder=folder,
        origin=Origin(
            study=study_name,
            question=study.question,
            trial=number,
            seed=trial.seed,
            initial=Path(trial.knobs["from"]).name if "from" in trial.knobs else None,
            metrics=trial.metrics,
            data={**data, **_without_paths(data)},
        ),
        tokenizer=None if foreign else _tokenizer(home, data.get("tokenizer_sha256"), data.get("corpus_fingerprint")),
        tokenizer_folder=folder if foreign is None else Path(foreign.path).parent,
    )


def _without_paths(data: Mapping[str, Any]) -> dict[str, str]:
    """Corpus and vocabulary in words that give away no folder of this machine."""
    kind, _, pattern = str(data.get("corpus", "")).partition(":")
    named = {"corpus": f"files:{Path(pattern).name}"} if kind == "files" else {}
    foreign = DataConfig(vocab=data.get("vocab", "bytes")).tokenizer
    return named if foreign is None else {**named, "vocab": f"the initial checkpoint's, {foreign.vocab_size} ids"}


def _kept(home: Home, study: str, trial: TrialRecord, *, best: bool) -> tuple[AttemptRecord, Path]:
    """The latest attempt that left a model, and the model."""
    for attempt in reversed(trial.attempts):
        fetch_model(home, study, trial.number, attempt.number)
        folder = AttemptFolder(home.attempt(study, trial.number, attempt.number))
        if folder.model.is_dir():
            return attempt, folder.best if best and folder.best.is_dir() else folder.model
    raise StudyError(
        f"trial {trial.number} of {study} is {trial.state.value} and has left no model; `plt status {study}` lists "
        "those that are COMPLETE"
    )


def _tokenizer(home: Home, tokenizer: str | None, corpus: str | None) -> str | None:
    """The tokenizer's text among the token shards of this home."""
    if tokenizer is None:
        return None
    for path in home.data.glob("*/manifest.json"):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if (manifest.get("tokenizer_sha256"), manifest.get("corpus_fingerprint")) == (tokenizer, corpus):
            return (path.parent / "tokenizer.json").read_text(encoding="utf-8")
    return None
