"""What is wrong with a study file: a place and a sentence; pydantic's findings in the project's words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from orchestrator.errors import SpecError
from orchestrator.spec.knobs import allowed, closest

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
        Problem(root + place, _sentence(root, place, details, model))
        for place, details in found.items()
        if not (place in inner and details[0]["type"] == "too_short")
    ]


def dotted(path: Path) -> str:
    """`search.lr.low`, `objectives[0].metric`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the file"


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
        return f"{name} is not a known key; known are {', '.join(known)}{closest(str(place[-1]), known)}"
    if kind == "missing":
        return f"{name} is missing"
    message = details[0]["msg"].removeprefix("Value error, ")
    if kind == "value_error" and not message.startswith("must be "):
        return f"{name}: {message}"
    return f"{name} is {value!r}; it must be {allowed(details)}"


def _known_keys(model: type[BaseModel], place: Path) -> list[str]:
    for part in place:
        if isinstance(part, str):
            annotation = model.model_fields[part].annotation
            model = next(
                kind
                for kind in (annotation, *get_args(annotation))
                if isinstance(kind, type) and hasattr(kind, "model_fields")
            )
    return list(model.model_fields)
