"""What the pages read, through caches that all sessions share and that hold a bounded number of records and curves."""

from collections.abc import Sequence

import streamlit as st

from orchestrator.home import Home
from orchestrator.records import StudyRecord
from orchestrator.tracking.reader import Curve, Reader, RunLink

REFRESH = 5.0
"""Seconds between two looks at what is new."""


@st.cache_resource(max_entries=4, show_spinner=False)
def _reader(home: Home) -> Reader:
    return Reader(home)


def reader() -> Reader:
    """The reader of the home that `PLT_HOME` names."""
    return _reader(Home.from_environment())


@st.cache_resource(ttl=REFRESH / 2, max_entries=256, show_spinner=False)
def _study(home: Home, name: str) -> StudyRecord:
    return _reader(home).study(name)


def load_study(name: str) -> StudyRecord:
    """A study, at most a few seconds old; a PltError when it cannot be read."""
    return _study(Home.from_environment(), name)


@st.cache_data(ttl=REFRESH, max_entries=256, show_spinner=False)
def _curves(home: Home, study: str, numbers: tuple[int, ...], metric: str) -> dict[int, Curve]:
    return _reader(home).curves(study, numbers, metric)


def load_curves(study: str, numbers: Sequence[int], metric: str) -> dict[int, Curve]:
    """Curves by trial number; a ServiceError when MLflow cannot be read."""
    return _curves(Home.from_environment(), study, tuple(numbers), metric)


@st.cache_data(ttl=REFRESH, max_entries=256, show_spinner=False)
def _curve_metrics(home: Home, study: str, numbers: tuple[int, ...]) -> list[str]:
    return _reader(home).curve_metrics(study, numbers)


def load_curve_metrics(study: str, numbers: Sequence[int]) -> list[str]:
    """Names of the metrics that have curves; a ServiceError when MLflow cannot be read."""
    return _curve_metrics(Home.from_environment(), study, tuple(numbers))


@st.cache_data(ttl=REFRESH, max_entries=256, show_spinner=False)
def _run_link(home: Home, study: str, number: int) -> RunLink | None:
    return _reader(home).run_link(study, number)


def load_run_link(study: str, number: int) -> RunLink | None:
    """Where a trial's MLflow run is; a ServiceError when MLflow cannot be read."""
    return _run_link(Home.from_environment(), study, number)
