"""What a study's data is and whether it is there, known before anything is built.

A corpus is part of what a study's trials mean, so its fingerprint is part of the study's identity.
"""

from orchestrator.errors import ServiceError
from orchestrator.home import Home
from orchestrator.spec import StudySpec
from workers.code.wheel import code_file
from workers.config import DataConfig
from workers.data import DataError, data_fingerprint


def corpus_fingerprints(spec: StudySpec) -> dict[str, str]:
    """Fingerprint of every corpus or task that the study may use, by name.

    Raises a `ServiceError` when one cannot be read from here.
    """
    searched = spec.search.get("corpus")
    names = list(searched.ends()) if searched is not None else [spec.data.corpus or DataConfig().corpus]
    try:
        return {name: data_fingerprint(DataConfig(corpus=name)) for name in names}
    except DataError as error:
        raise ServiceError(f"data: {error}") from error


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
