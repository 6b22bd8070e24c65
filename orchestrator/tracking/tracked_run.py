"""What a tracker remembers of one run, as plain records: the read side of every tracker.

A point of a metric's history is the last value said for its step; a resumed attempt that repeats steps therefore
leaves one curve, not two.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class RunStatus(StrEnum):
    """MLflow's words for how a run stands."""

    RUNNING = "RUNNING"
    SCHEDULED = "SCHEDULED"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"

    @property
    def ended(self) -> bool:
        """Whether nothing more is expected of the run."""
        return self not in (RunStatus.RUNNING, RunStatus.SCHEDULED)


class Point(NamedTuple):
    """One value of a metric."""

    step: int
    """Optimizer steps done."""
    value: float
    """NaN where the value was not finite."""
    timestamp: float
    """Seconds since the epoch."""


MetricPoint = tuple[str, Point]
"""A metric's name and one of its points."""


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """One run as the tracking system shows it."""

    run_id: str
    number: int | None
    """The trial's number; None for the study's parent run."""
    status: RunStatus
    params: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Latest value of every metric."""
    tags: Mapping[str, str] = field(default_factory=dict)
    started: datetime | None = None
    ended: datetime | None = None


def latest_per_step(points: Iterable[Point]) -> list[Point]:
    """One point per step, the one said last, in order of steps."""
    by_step: dict[int, Point] = {}
    for point in sorted(points, key=lambda point: point.timestamp):
        by_step[point.step] = point
    return [by_step[step] for step in sorted(by_step)]
