"""What a study trains on and from, and whether it is there, known before anything is built.

Its fingerprints are part of what the study's trials mean, and so of its identity.
"""

import hashlib
from pathlib import Path

from orchestrator.errors import ServiceError
from orchestrator.home import Home
from orchestrator.spec import StudySpec
from workers.code.wheel import code_file
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


def refuse_missing_code_sets(spec: StudySpec, home: Home) -> None:
    """Raise a `ServiceError` when a study is to be scored on code that has not been fetched."""
    searched = spec.search.get("code_sets")
    chosen = list(searched.ends()) if searched is not None else [spec.data.code_sets or "none"]
    wanted = sorted({name for each in chosen for name in each.split("+")} - {"none"})
    missing = " ".join(name for name in wanted if not code_file(home.data, name).exists())
    if missing:
        raise ServiceError(
            f"code_sets has {missing}, not in {home.data / 'code'}; fetch with: plt data fetch {missing}"
        )


def _weights(folder: Path) -> str:
    """Identity by content of the checkpoint that a study starts from."""
    try:
        return fingerprint([[path.name, _hash(path)] for path in sorted(folder.glob("*.safetensors"))])
    except OSError as error:
        raise ServiceError(f"model.from: {error.filename} cannot be read ({error.strerror})") from error


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
