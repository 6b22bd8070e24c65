"""The table of configurations behind the charts, made again and again: only rows that changed are worked out.

Not for several threads at once.
"""

import math
from collections.abc import Sequence

import pandas as pd

from dashboard import formats
from orchestrator.configurations import ConfigurationRecord
from orchestrator.records import StudyRecord, TrialState

FIXED = ("fingerprint", "label", "trials", "seeds", "num_loops", "window", "gate", "standing")
"""Columns of every study."""
Row = tuple[object, ...]


class ConfigurationRows:
    """Rows of one study's configurations at successive moments."""

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._rows: dict[str, tuple[ConfigurationRecord, Row]] = {}

    def frame(self, study: StudyRecord, configurations: Sequence[ConfigurationRecord]) -> pd.DataFrame:
        """One row per configuration: identity, knobs that are drawn, standing, every metric's mean and interval."""
        metrics = sorted({metric for one in configurations for metric in one.metrics})
        searched = [name for name in study.search if name not in FIXED]
        columns = [*FIXED, *searched, *(column for metric in metrics for column in metric_columns(metric))]
        known = self._rows if columns == self._columns else {}
        self._columns, self._rows = columns, {}
        for one in configurations:
            before = known.get(one.fingerprint)
            row = before[1] if before is not None and before[0] is one else _row(one, searched, metrics)
            self._rows[one.fingerprint] = (one, row)
        return pd.DataFrame.from_records([row for _, row in self._rows.values()], columns=columns)


def metric_columns(metric: str) -> tuple[str, str, str]:
    """A metric's columns: mean, low, high."""
    return metric, f"{metric} low", f"{metric} high"


def standing(one: ConfigurationRecord) -> str:
    """How a configuration stands: `front`, `dominated`, `infeasible`, `stopped`, `unfinished` or `failed`."""
    if not one.feasible:
        return "infeasible"
    if one.trials and all(trial.state is TrialState.FAIL for trial in one.trials):
        return "failed"
    if not one.complete:
        return "stopped" if any(trial.stopped_at is not None for trial in one.trials) else "unfinished"
    return "front" if one.on_front else "dominated"


def _row(one: ConfigurationRecord, searched: Sequence[str], metrics: Sequence[str]) -> Row:
    intervals = [one.metrics.get(metric) for metric in metrics]
    return (
        one.fingerprint,
        formats.configuration_label(one.params),
        [trial.number for trial in one.trials],
        sum(1 for trial in one.trials if trial.state is TrialState.COMPLETE),
        int(one.knobs.get("num_loops") or 1),
        one.knobs.get("window"),
        formats.gate_kind(one.knobs),
        standing(one),
        *(one.params.get(name) for name in searched),
        *(
            math.nan if value is None else value
            for interval in intervals
            for value in ((None,) * 3 if interval is None else (interval.mean, interval.low, interval.high))
        ),
    )
