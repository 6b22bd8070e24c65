"""The identity of what a study trains on, known before anything is built: a corpus is part of what its trials mean."""

from orchestrator.errors import ServiceError
from orchestrator.spec import StudySpec
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
