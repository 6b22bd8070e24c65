"""What is said of a study's runs, one entry at a time, and each entry as a line of JSON.

An entry says everything itself: whoever reads it later, in another process, can deliver it. Entries of one run take
effect in the order in which they were said. Times are milliseconds since the epoch, MLflow's unit, so the time zone of
the machine does not matter.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.tracking.tracked_run import RunStatus
from workers.protocol import MetricReport


@dataclass(frozen=True, kw_only=True)
class Reported:
    """A trial's metrics at one step."""

    number: int
    time: int
    """When it was said; no two reports of a driver share one."""
    report: MetricReport


@dataclass(frozen=True, kw_only=True)
class RunUpdate:
    """How a run stands now: enough to make it, should it be missing."""

    number: int | None
    """The trial's; None for the study's own run."""
    time: int
    status: RunStatus
    name: str
    started: int
    ended: int | None = None
    """Only with a status that ends the run."""
    identity: Mapping[str, str] = field(default_factory=dict)
    """Tags by which the run is found again; a run that has others is not this one."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Tags that only a new run gets: which code and machine made it."""
    tags: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Final ones, finite."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Artifacts: file name to text."""


Entry = Reported | RunUpdate


def encode(entry: Entry) -> bytes:
    """An entry as a line; values that are not finite become null."""
    if isinstance(entry, RunUpdate):
        return _line({"run": entry.number, **{name: value for name, value in vars(entry).items() if name != "number"}})
    report = entry.report
    metrics = {name: float(value) if math.isfinite(value) else None for name, value in report.metrics.items()}
    said = {"step": report.step, "tokens": report.tokens, "seconds": float(report.seconds), "metrics": metrics}
    return _line({"trial": entry.number, "time": entry.time, **said})


def decode(line: bytes) -> Entry:
    """The entry of a line; a ValueError when it is none."""
    try:
        data = json.loads(line)
        if "run" in data:
            return RunUpdate(number=data.pop("run"), status=RunStatus(data.pop("status")), **data)
        metrics = {name: math.nan if value is None else value for name, value in data["metrics"].items()}
        report = MetricReport(step=data["step"], tokens=data["tokens"], seconds=data["seconds"], metrics=metrics)
        return Reported(number=data["trial"], time=data["time"], report=report)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no entry of a tracker: {line[:80]!r}") from error


def _line(data: Mapping[str, object]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"
