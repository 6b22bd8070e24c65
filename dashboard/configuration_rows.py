"""The table of configurations behind the charts, made again and again: only rows that changed are worked out.

Not for several threads at once.
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
import pandas as pd

from dashboard import formats
from orchestrator.configurations import ConfigurationRecord
from orchestrator.records import StudyRecord, TrialState

FIXED = ("fingerprint", "label", "trials", "seeds", "num_loops", "window", "gate", "standing")
"""Columns of every study."""
_TEXTS = ("fingerprint", "label", "trials", "gate", "standing")
"""Columns that stay Python objects: Arrow's strings are slow to cut apart and to make anew."""
_COUNTS = ("seeds", "num_loops")


class ConfigurationRows:
    """Rows of one study's configurations at successive moments."""

    def __init__(self) -> None:
        self._names: tuple[list[str], list[str]] = ([], [])
        self._known: list[ConfigurationRecord] = []
        self._metrics: Counter[str] = Counter()
        self._words: list[list[object]] = []
        """By column: what is not measured."""
        self._numbers = np.empty((0, 0))
        """By row, with room to grow: mean, low and high of every metric."""

    def frame(self, study: StudyRecord, configurations: Sequence[ConfigurationRecord]) -> pd.DataFrame:
        """One row per configuration: identity, knobs that are drawn, standing, every metric's mean and interval."""
        changed = self._changes(configurations)
        searched, metrics = [name for name in study.search if name not in FIXED], sorted(+self._metrics)
        if (searched, metrics) != self._names or len(configurations) < len(self._known):
            self._names, changed = (searched, metrics), list(range(len(configurations)))
            self._words = [[] for _ in (*FIXED, *searched)]
            self._numbers = np.empty((0, 3 * len(metrics)))
        self._known = list(configurations)
        self._make_room(len(configurations))
        for index in changed:
            self._set(index, configurations[index])
        words = {
            name: pd.Series(values, dtype=object if name in _TEXTS else int if name in _COUNTS else None)
            for name, values in zip((*FIXED, *searched), self._words, strict=True)
        }
        columns = [column for metric in metrics for column in metric_columns(metric)]
        numbers = pd.DataFrame(self._numbers[: len(configurations)], columns=columns)
        return pd.concat([pd.DataFrame(words), numbers], axis=1)

    def _changes(self, configurations: Sequence[ConfigurationRecord]) -> list[int]:
        """Positions of the configurations that are not as they were; how many have each metric is counted again."""
        changed = []
        for index, (before, now) in enumerate(zip_longest(self._known, configurations)):
            if before is not now:
                changed.append(index)
                self._metrics.subtract(before.metrics.keys() if before is not None else ())
                self._metrics.update(now.metrics.keys() if now is not None else ())
        return changed

    def _make_room(self, rows: int) -> None:
        """For so many, and some more, so that few of the times when a study grows cost a copy."""
        if rows > len(self._numbers):
            larger = np.full((rows + rows // 8 + 16, self._numbers.shape[1]), math.nan)
            larger[: len(self._numbers)] = self._numbers
            self._numbers = larger

    def _set(self, index: int, one: ConfigurationRecord) -> None:
        """Write a row; those that are new come in order."""
        searched, metrics = self._names
        words = _words(one, searched)
        if index < len(self._words[0]):
            for column, value in zip(self._words, words, strict=True):
                column[index] = value
        else:
            for column, value in zip(self._words, words, strict=True):
                column.append(value)
        self._numbers[index] = _numbers(one, metrics)


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


def _words(one: ConfigurationRecord, searched: Sequence[str]) -> tuple[object, ...]:
    return (
        one.fingerprint,
        formats.configuration_label(one.params),
        [trial.number for trial in one.trials],
        sum(1 for trial in one.trials if trial.state is TrialState.COMPLETE),
        int(one.knobs.get("num_loops") or 1),
        one.knobs.get("window"),
        formats.gate_kind(one.knobs),
        standing(one),
        *[one.params.get(name) for name in searched],
    )


def _numbers(one: ConfigurationRecord, metrics: Sequence[str]) -> list[float]:
    """Mean, low and high of each metric; NaN for what there is not."""
    row: list[float] = []
    for metric in metrics:
        known = one.metrics.get(metric)
        row += (
            (math.nan, math.nan, math.nan)
            if known is None
            else (
                known.mean,
                math.nan if known.low is None else known.low,
                math.nan if known.high is None else known.high,
            )
        )
    return row
