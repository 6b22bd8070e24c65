"""What makes a study the same study when it is run again: the question it asks, not how much of it."""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.errors import StudyError

_FIXED = ("model", "data", "train", "search", "objectives", "constraints", "benchmark", "sampler")
"""Sections that decide what a trial is and how it is judged. Name, question, budget, resources, diagnostics and retry
may change."""


def refuse_other_study(stored: Mapping[str, Any], new: Mapping[str, Any], removal: str) -> None:
    """Raise a `StudyError` that names every difference when `new` cannot continue `stored`; both are plain specs.

    `removal` says how the old study can be done away with. Seeds may be added at the end: every configuration then gets
    the new ones too.
    """
    differences = [text for section in _FIXED for text in _differences(section, stored.get(section), new.get(section))]
    if new["seeds"][: len(stored["seeds"])] != stored["seeds"]:
        differences.append(f"seeds is {new['seeds']}, was {stored['seeds']}")
    if differences:
        raise StudyError(
            f"study {new['name']} exists and asks another question: {'; '.join(differences)}; "
            f"give the new study another name, start it from the old one's trials with `--fork NEW-NAME`, "
            f"or {removal}"
        )


def refuse_other_data(name: str, stored: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Raise a `StudyError` when a corpus has another content than when the study began."""
    for corpus, fingerprint in new.items():
        if stored.get(corpus, fingerprint) != fingerprint:
            raise StudyError(
                f"study {name} began with other data: corpus {corpus} has fingerprint {fingerprint}, "
                f"was {stored[corpus]}; restore the old files (stdlib: the same Python), or give the study another name"
            )


def _differences(path: str, stored: Any, new: Any) -> Iterator[str]:
    if isinstance(stored, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*stored, *new]):
            yield from _differences(f"{path}.{key}", stored.get(key), new.get(key))
    elif stored != new:
        yield f"{path} is {_text(new)}, was {_text(stored)}"


def _text(value: Any) -> str:
    return "not set" if value is None else str(value)
