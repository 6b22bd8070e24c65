"""What `corpus` names: one text corpus or task, or several with weights, such as `2*stdlib + phop + addition`."""

import re
from dataclasses import dataclass

from workers.config.task_shapes import TASKS

_WEIGHTED = re.compile(r"(\d{1,4})\*(.+)")


@dataclass(frozen=True)
class Part:
    """One member of a mixture."""

    name: str
    """`stdlib`, `files:GLOB`, or a task's name."""
    weight: int = 1
    """Sequences of it, relative to the other parts' weights."""

    @property
    def is_task(self) -> bool:
        """Whether it is generated rather than read."""
        return self.name in TASKS


def parse_corpus(written: str) -> tuple[Part, ...]:
    """The parts in the order written; a `ValueError` says what is allowed.

    Parts are separated by ` + `, with spaces. Two texts cannot be mixed: they would share one tokenizer.
    """
    parts = tuple(_part(text.strip()) for text in written.split(" + "))
    if not all(part.weight >= 1 and (part.is_task or _is_text(part.name)) for part in parts):
        raise ValueError(
            f"must be stdlib, files:GLOB, a task ({', '.join(TASKS)}), or several such as '2*stdlib + phop'"
        )
    if len({part.name for part in parts}) < len(parts):
        raise ValueError("must be different parts; give one a weight, such as 2*phop")
    if sum(not part.is_task for part in parts) > 1:
        raise ValueError("must be one text at most, beside tasks; put several sets of files into one files:GLOB")
    return parts


def write_corpus(parts: tuple[Part, ...]) -> str:
    """The one way in which a mixture is written."""
    if len(parts) == 1:
        return parts[0].name
    return " + ".join(part.name if part.weight == 1 else f"{part.weight}*{part.name}" for part in parts)


def _part(text: str) -> Part:
    weighted = _WEIGHTED.fullmatch(text)
    return Part(weighted[2].strip(), int(weighted[1])) if weighted else Part(text)


def _is_text(name: str) -> bool:
    return name == "stdlib" or (name.startswith("files:") and name != "files:")
