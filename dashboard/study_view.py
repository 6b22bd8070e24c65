"""A study at one version with everything that pages derive from it, each worked out once and shared by all sessions."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import pandas as pd

from dashboard import comparison, frames
from dashboard.configuration_rows import ConfigurationRows
from orchestrator.configurations import ConfigurationRecord, Grouping
from orchestrator.hypervolume import HypervolumePoint, hypervolume_history
from orchestrator.records import StudyRecord
from orchestrator.savings import Savings, savings

_MOST_DERIVED = 64
"""Figures and the like that are kept beside one version."""

_MOST_CHOICES = 1_000
"""Configurations up to which a box offers every one."""


class StudyView:
    """One version; nothing in it changes any more."""

    def __init__(self, study: StudyRecord, configurations: Sequence[ConfigurationRecord], frame: pd.DataFrame) -> None:
        self.study, self.configurations, self.frame = study, configurations, frame
        self._lock = Lock()
        self._derived: OrderedDict[Hashable, Any] = OrderedDict()

    @cached_property
    def metrics(self) -> list[str]:
        """Metrics that some complete configuration has, the objectives first."""
        return frames.metrics_of(self.study, self.configurations)

    @cached_property
    def labels(self) -> dict[str, str]:
        """A distinct label of every configuration, by fingerprint."""
        fingerprints = self.frame["fingerprint"].tolist()
        return dict(zip(fingerprints, comparison.distinct(self.frame["label"].tolist(), fingerprints), strict=True))

    def owners(self) -> dict[int, str]:
        """The configuration of every trial, by number."""
        return {trial.number: trial.configuration for trial in self.study.trials}

    def choices(self, picks: Sequence[str]) -> list[str]:
        """The configurations that a box offers: all, or in a large study the front and those that are chosen already.

        A browser is slow with thousands of choices; the charts have every point.
        """
        if len(self.labels) <= _MOST_CHOICES:
            return list(self.labels)
        front = self.frame.loc[self.frame["standing"] == "front", "fingerprint"]
        return list(dict.fromkeys([*picks, *front.tolist()[:_MOST_CHOICES]]))

    @cached_property
    def row(self) -> dict[str, object]:
        """The study's row in the table of studies."""
        return frames.study_row(self.study, self.configurations)

    @cached_property
    def hypervolume(self) -> list[HypervolumePoint]:
        """How the front grew."""
        return hypervolume_history(self.study)

    @cached_property
    def savings(self) -> Savings:
        """What pruning and known constraints saved."""
        return savings(self.study)

    def derived(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives, kept under a key as long as this version is; the oldest makes room."""
        with self._lock:
            if key in self._derived:
                return self._derived[key]
        value = make()
        with self._lock:
            self._derived[key] = value
            while len(self._derived) > _MOST_DERIVED:
                self._derived.popitem(last=False)
        return value


class StudyViews:
    """The latest version of the studies that were looked at lately; several threads may share it."""

    def __init__(self, most: int = 32) -> None:
        self._most, self._lock = most, Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def of(self, study: StudyRecord) -> StudyView:
        """The view of this record; the same one while the record is the same object."""
        with self._lock:
            kept = self._kept.setdefault(study.name, _Kept())
            self._kept.move_to_end(study.name)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return kept.of(study)


class _Kept:
    """One study: its latest view, and what makes the next one cheap."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._grouping, self._rows = Grouping(), ConfigurationRows()
        self._view: StudyView | None = None

    def of(self, study: StudyRecord) -> StudyView:
        with self._lock:
            if self._view is None or self._view.study is not study:
                configurations = self._grouping.group(study)
                self._view = StudyView(study, configurations, self._rows.frame(study, configurations))
            return self._view
