"""What a study's running trials are doing: a small file that the driver rewrites about once a second, less often when
thousands run and writing takes its time.

For people who watch. Nothing is ever decided by it, so a write that fails is left out.

    {"updated": "2026-01-31T12:00:00+00:00", "queued_because": null,
     "trials": {"7": {"attempt": 1, "step": 40, "steps": 200, "tokens": 81920, "seconds": 3.2, "metrics": {...}}}}
"""

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.home import write_aside
from workers.protocol import MetricReport

_EVERY_SECONDS = 1.0
_SHARE = 0.02
"""Of the driver's time, at most."""


class LiveFile:
    """The file of one study."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """`clock` gives seconds that never go back; it paces the writing."""
        self._path, self._clock = path, clock
        self._trials: dict[int, dict[str, Any]] = {}
        self._queued_because: str | None = None
        self._next = clock()
        self._changed = False

    def started(self, number: int, attempt: int, steps: int) -> None:
        """An attempt begins, of so many optimizer steps."""
        self._trials[number] = {
            "attempt": attempt,
            "step": 0,
            "steps": steps,
            "tokens": 0,
            "seconds": 0.0,
            "metrics": {},
        }
        self._changed = True

    def reported(self, number: int, report: MetricReport) -> None:
        """It sent metrics."""
        trial = self._trials[number]
        trial |= {"step": report.step, "tokens": report.tokens, "seconds": report.seconds}
        trial["metrics"] = {**trial["metrics"], **report.metrics}
        self._changed = True

    def ended(self, number: int) -> None:
        """It runs no more."""
        self._trials.pop(number, None)
        self._changed = True

    def queued(self, why: str | None) -> None:
        """Why attempts wait, or None."""
        self._changed |= why != self._queued_because
        self._queued_because = why

    def write(self, *, now: bool = False) -> None:
        """Write what changed, if the last time is long enough ago or `now` is asked."""
        if not now and (not self._changed or self._clock() < self._next):
            return
        began = self._clock()
        plain = {
            "updated": datetime.now(UTC).isoformat(),
            "queued_because": self._queued_because,
            "trials": {str(number): trial for number, trial in self._trials.items()},
        }
        with contextlib.suppress(OSError):
            write_aside(self._path, json.dumps(plain))
        ended = self._clock()
        self._next, self._changed = ended + max(_EVERY_SECONDS, (ended - began) / _SHARE), False
