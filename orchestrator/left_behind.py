"""The files that a trial's attempts left in the study's home: checkpoints, output, whatever the worker kept."""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.home import Home

_MOST = 200
"""Files that are listed."""


@dataclass(frozen=True)
class LeftFile:
    """One file."""

    path: Path
    size: int
    """Bytes."""


def left_behind(home: Home, study: str, number: int) -> list[LeftFile]:
    """The files by path, at most 200; none where another machine has them."""
    folder = home.attempt(study, number, 1).parent
    found = []
    for path in sorted(folder.rglob("*")):
        try:
            if path.is_file():
                found.append(LeftFile(path, path.stat().st_size))
        except OSError:  # taken away meanwhile: a state that a later one replaced
            continue
    return found[:_MOST]
