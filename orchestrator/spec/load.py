"""From a study file to a `StudySpec`."""

from pathlib import Path

from orchestrator.spec.document import read_document
from orchestrator.spec.study_spec import StudySpec


def load_spec(path: Path) -> StudySpec:
    """Read and check a study file; a `SpecError` has a `file:line: ...` line for every problem."""
    document = read_document(path)
    return StudySpec.from_plain(document.data, document.locate)
