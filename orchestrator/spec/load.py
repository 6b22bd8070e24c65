"""From a study file to a `StudySpec`."""

import glob
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.spec.checkpoint_start import with_checkpoint
from orchestrator.spec.corpus_checks import corpus_problems
from orchestrator.spec.document import read_document
from orchestrator.spec.problem import spec_error
from orchestrator.spec.study_spec import StudySpec
from workers.config.mixture import parse_corpus, write_corpus


def load_spec(path: Path, *, files_here: bool = True, text: str | None = None) -> StudySpec:
    """Read and check a study file; a `SpecError` has a `file:line: ...` line for every problem.

    With `files_here` the text that a `files:GLOB` names is looked at too; a remote cluster may have it where this
    machine does not. With `text`, that is read as if it stood in the file.
    """
    document = read_document(path, text=text)
    data = _with_absolute_globs(document.data, path.resolve().parent)
    data, misfits = with_checkpoint(data, path.resolve().parent)
    if misfits:
        raise spec_error(misfits, document.locate)
    spec = StudySpec.from_plain(data, document.locate)
    problems = list(corpus_problems(spec)) if files_here else []
    if problems:
        raise spec_error(problems, document.locate)
    return spec


def _with_absolute_globs(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """`files:GLOB` means files beside the study file, wherever the command is typed and the worker runs."""
    changed = dict(data)
    section, search = data.get("data"), data.get("search")
    if isinstance(section, Mapping) and "corpus" in section:
        changed["data"] = {**section, "corpus": _absolute(section["corpus"], folder)}
    searched = search.get("corpus") if isinstance(search, Mapping) else None
    if isinstance(search, Mapping) and isinstance(searched, Mapping) and isinstance(searched.get("choices"), list):
        choices = [_absolute(choice, folder) for choice in searched["choices"]]
        changed["search"] = {**search, "corpus": {**searched, "choices": choices}}
    return changed


def _absolute(corpus: Any, folder: Path) -> Any:
    """The corpus with its glob below `folder`; anything that cannot be read is left for the checks."""
    try:
        parts = parse_corpus(corpus) if isinstance(corpus, str) else ()
    except ValueError:
        parts = ()
    return write_corpus(tuple(replace(part, name=_below(part.name, folder)) for part in parts)) if parts else corpus


def _below(name: str, folder: Path) -> str:
    if not name.startswith("files:"):
        return name
    pattern = Path(name.removeprefix("files:")).expanduser()
    return f"files:{pattern if pattern.is_absolute() else Path(glob.escape(str(folder))) / pattern}"
