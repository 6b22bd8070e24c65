"""From a study file to a `StudySpec`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.spec.document import read_document
from orchestrator.spec.study_spec import StudySpec


def load_spec(path: Path) -> StudySpec:
    """Read and check a study file; a `SpecError` has a `file:line: ...` line for every problem."""
    document = read_document(path)
    return StudySpec.from_plain(_with_absolute_globs(document.data, path.resolve().parent), document.locate)


def _with_absolute_globs(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """`files:GLOB` means files beside the study file, wherever the command is typed and the worker runs."""
    section = data.get("data")
    corpus = section.get("corpus") if isinstance(section, Mapping) else None
    if not isinstance(section, Mapping) or not isinstance(corpus, str) or not corpus.startswith("files:"):
        return dict(data)
    glob = corpus.removeprefix("files:")
    absolute = glob if not glob or Path(glob).is_absolute() else str(folder / glob)
    return {**data, "data": {**section, "corpus": f"files:{absolute}"}}
