"""What the running trials of a study are doing, read from the file that its driver rewrites (`orchestrator.live`).

Nothing is ever decided by it, so a file that is missing, half written or of another shape is no error.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class LiveTrial:
    """One running attempt."""

    attempt: int
    step: int
    steps: int
    """Optimizer steps that it will do in all."""
    tokens: int
    seconds: float
    """Since the attempt began, at its last report."""
    metrics: Mapping[str, float]
    """The latest value of each."""


@dataclass(frozen=True, kw_only=True)
class LiveState:
    """All running attempts of a study."""

    trials: Mapping[int, LiveTrial] = field(default_factory=dict)
    queued_because: str | None = None
    """Why attempts wait for a place, or None."""


def read_live(path: Path) -> LiveState | None:
    """What the file says, or None when it cannot be read now."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        trials = {int(number): _trial(trial) for number, trial in plain["trials"].items()}
        return LiveState(trials=trials, queued_because=plain["queued_because"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _trial(plain: Mapping[str, object]) -> LiveTrial:
    return LiveTrial(**{name: plain[name] for name in LiveTrial.__dataclass_fields__})  # type: ignore[arg-type]
