"""A study at one moment, as someone sees it who watches from outside its driver."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from orchestrator.export import study_summary
from orchestrator.live_state import LiveState, LiveTrial
from orchestrator.records import StudyRecord, TrialRecord, TrialState


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What the journal and the live file say together."""

    study: StudyRecord
    live: LiveState
    at: datetime
    """When it was taken; aware."""

    @property
    def driven(self) -> bool:
        """Whether a living process drives the study, so that more will happen."""
        return self.study.driver is not None

    @property
    def queued_because(self) -> str | None:
        """Why attempts wait for a place, or None; nothing waits when nobody drives the study."""
        return self.live.queued_because if self.driven else None

    @property
    def seconds(self) -> float:
        """From the first attempt to now, or to the end of the last one when nobody drives the study."""
        attempts = [attempt for trial in self.study.trials for attempt in trial.attempts]
        if not attempts:
            return 0.0
        ends = [attempt.ended for attempt in attempts if attempt.ended is not None]
        last = self.at if self.driven else max([*ends, max(attempt.started for attempt in attempts)])
        return (last - min(attempt.started for attempt in attempts)).total_seconds()

    def running(self) -> Iterator[tuple[TrialRecord, LiveTrial | None]]:
        """Running trials by number, with what their latest attempt is doing where that is known."""
        for trial in self.study.trials:
            if trial.state is TrialState.RUNNING:
                live = self.live.trials.get(trial.number)
                latest = trial.attempts[-1].number if trial.attempts else None
                yield trial, live if live is not None and live.attempt == latest else None

    def to_plain(self) -> dict[str, Any]:
        """The study's summary with time and running trials, JSON-ready; a metric that is no number is None."""
        return {
            **study_summary(self.study),
            "time": self.at.isoformat(),
            "seconds": self.seconds,
            "queued_because": self.queued_because,
            "running": {str(trial.number): _live_to_plain(live) for trial, live in self.running()},
        }


def _live_to_plain(live: LiveTrial | None) -> dict[str, Any]:
    if live is None:
        return {}
    finite = {name: value if math.isfinite(value) else None for name, value in live.metrics.items()}
    return {**asdict(live), "metrics": finite}
