"""What is wrong with a study file: a place and a sentence; pydantic's findings in the project's words."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from orchestrator.errors import SpecError
from orchestrator.spec.knobs import KNOBS, allowed, closest
from orchestrator.spec.written import EntryError, dotted, shown

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the file."""

Locate = Callable[[Path], str]
"""`file:line` of a place, or of the nearest place around it."""


@dataclass(frozen=True)
class Problem:
    """One thing to mend."""

    path: Path
    text: str
    """What, the value, and what is allowed."""


def spec_error(problems: Sequence[Problem], locate: Locate) -> SpecError:
    """All problems as one error, a line each, without repetition."""
    lines = dict.fromkeys(f"{locate(problem.path)}: {problem.text}" for problem in problems)
    return SpecError("\n".join(lines))


def problems_of(error: ValidationError, root: Path, model: type[BaseModel], written: object) -> list[Problem]:
    """Pydantic's findings about what was written at `root` and read as `model`, one per place."""
    found: dict[Path, list[Any]] = {}
    for detail in error.errors(include_url=False):
        found.setdefault(_place(detail, written), []).append(detail)
    inner = {place[:depth] for place in found for depth in range(len(place))}
    return [
        Problem(root + place + _key(details[0]), _sentence(root, place, details, model))
        for place, details in found.items()
        if not (place in inner and details[0]["type"] == "too_short")
    ]


def missing_values(written: object, path: Path = ()) -> list[Problem]:
    """Every key and list item behind which nothing is written."""
    if written is None:
        return [Problem(path, f"{dotted(path)} has no value (null); give it one, or leave it out{_if_left_out(path)}")]
    if isinstance(written, Mapping):
        entries: Iterable[tuple[str | int, Any]] = written.items()
    else:
        entries = enumerate(written) if isinstance(written, list | tuple) else ()
    return [problem for key, value in entries for problem in missing_values(value, (*path, key))]


def without_missing(written: Mapping[str, Any]) -> dict[str, Any]:
    """The same without the keys behind which nothing is written; list items stay in their places."""
    return {
        key: without_missing(value) if isinstance(value, Mapping) else value
        for key, value in written.items()
        if value is not None
    }


def _if_left_out(path: Path) -> str:
    return ": without it nothing is measured; {} measures with the defaults" if path == ("benchmark",) else ""


def _key(detail: Any) -> Path:
    """The key inside the place, where the finding names one."""
    cause = detail.get("ctx", {}).get("error")
    return (cause.key,) if isinstance(cause, EntryError) else ()


def _place(detail: Any, written: object) -> Path:
    """Where it is, without the names of union members that pydantic appends."""
    loc: Path = detail["loc"]
    if detail["type"] == "missing":
        return loc
    for depth, part in enumerate(loc):
        inside = isinstance(written, Mapping) and part in written
        if not inside and not (isinstance(written, list | tuple) and isinstance(part, int)):
            return loc[:depth]
        written = written[part]  # type: ignore[index]  # one of the two that were just checked
    return loc


def _sentence(root: Path, place: Path, details: Sequence[Any], model: type[BaseModel]) -> str:
    kind, value, name = details[0]["type"], details[0]["input"], dotted(root + place)
    if kind == "extra_forbidden":
        known = _known_keys(model, place[:-1])
        return f"{name} is not a known key; known are {', '.join(known)}{_belongs(str(place[-1]), known)}"
    if kind == "missing":
        return f"{name} is missing"
    message = details[0]["msg"].removeprefix("Value error, ")
    if kind == "value_error" and not message.startswith("must be "):
        return f"{name}: {message}"
    return f"{name} is {shown(value)}; it must be {allowed(details)}"


def _belongs(key: str, known: Sequence[str]) -> str:
    """Where a key that is a knob should stand, or the known key that is nearest."""
    return f"; {key} belongs under {KNOBS[key].section}" if key in KNOBS else closest(key, known)


def _known_keys(model: type[BaseModel], place: Path) -> list[str]:
    for part in place:
        if isinstance(part, str):
            annotation = model.model_fields[part].annotation
            model = next(
                kind
                for kind in (annotation, *get_args(annotation))
                if isinstance(kind, type) and hasattr(kind, "model_fields")
            )
    return [field.alias or name for name, field in model.model_fields.items()]
