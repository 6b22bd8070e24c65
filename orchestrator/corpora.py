"""The identity of what a study trains on and from, known before anything is built: part of what its trials mean."""

import hashlib
from pathlib import Path

from orchestrator.errors import ServiceError
from orchestrator.spec import StudySpec
from workers.config import DataConfig
from workers.data import DataError, data_fingerprint
from workers.fingerprint import fingerprint


def corpus_fingerprints(spec: StudySpec) -> dict[str, str]:
    """Fingerprint of every corpus or task that the study may use, by name, and of the weights that it starts from.

    Raises a `ServiceError` when one cannot be read from here.
    """
    searched = spec.search.get("corpus")
    names = list(searched.ends()) if searched is not None else [spec.data.corpus or DataConfig().corpus]
    try:
        found = {name: data_fingerprint(DataConfig(corpus=name)) for name in names}
    except DataError as error:
        raise ServiceError(f"data: {error}") from error
    folder = spec.model.from_folder
    return found if folder is None else {**found, f"of the weights in {folder}": _weights(Path(folder))}


def _weights(folder: Path) -> str:
    """Identity by content of the checkpoint that a study starts from."""
    try:
        return fingerprint([[path.name, _hash(path)] for path in sorted(folder.glob("*.safetensors"))])
    except OSError as error:
        raise ServiceError(f"model.from: {error.filename} cannot be read ({error.strerror})") from error


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
