"""What the pages read, through caches that all sessions share and that hold a bounded number of studies and curves."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from threading import Timer

import streamlit as st

from dashboard.study_view import StudyView, StudyViews
from orchestrator.cluster_state import ClusterState, read_cluster
from orchestrator.home import Home
from orchestrator.loop_table import read_table
from orchestrator.records import StudyRecord
from orchestrator.tracking.reader import Curve, Reader, RunLink
from workers.protocol import LoopValue

REFRESH = 5.0
"""Seconds between two looks at what is new."""
_AFTER_FIRST_VIEW = 5.0
"""Seconds until MLflow's client is loaded, so that the first page need not share the processor with it."""
_MOST_ROWS = 2_000
"""Rows of the table of studies that are remembered."""


@st.cache_resource(max_entries=4, show_spinner=False)
def _reader(home: Home) -> Reader:
    reader = Reader(home)
    later = Timer(_AFTER_FIRST_VIEW, reader.prepare)
    later.daemon = True
    later.start()
    return reader


def reader() -> Reader:
    """The reader of the home that `PLT_HOME` names."""
    return _reader(Home.from_environment())


@st.cache_resource(max_entries=4, show_spinner=False)
def _views(home: Home) -> StudyViews:
    del home
    return StudyViews()


@st.cache_resource(max_entries=4, show_spinner=False)
def _rows(home: Home) -> OrderedDict[str, tuple[Hashable, dict[str, object]]]:
    del home
    return OrderedDict()


def load_study(name: str) -> StudyRecord:
    """A study as it stands, the same object while it has not changed; a PltError when it cannot be read."""
    return reader().study(name)


def load_view(name: str) -> StudyView:
    """A study with what is derived from it; a PltError when it cannot be read."""
    return _views(Home.from_environment()).of(load_study(name))


def load_row(name: str) -> dict[str, object]:
    """A study's row in the table of studies; it is read only when it has changed. A PltError as above."""
    rows, mark = _rows(Home.from_environment()), reader().mark(name)
    known = rows.get(name)
    if known is None or known[0] != mark:
        known = rows[name] = (mark, load_view(name).row)
        while len(rows) > _MOST_ROWS:
            rows.popitem(last=False)
    return known[1]


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


@st.cache_data(ttl=REFRESH, max_entries=256, show_spinner=False)
def _loop_table(home: Home, study: str, number: int) -> list[LoopValue]:
    return read_table(home.loop_table(study, number))


def load_loop_tables(study: str, numbers: Sequence[int]) -> list[list[LoopValue]]:
    """The tables of loop diagnostics of those trials that have one."""
    home = Home.from_environment()
    return [table for number in numbers if (table := _loop_table(home, study, number))]


@st.cache_data(ttl=REFRESH, max_entries=8, show_spinner=False)
def load_cluster(address: str) -> ClusterState:
    """What a Ray cluster has and does; a ServiceError when its dashboard does not answer."""
    return read_cluster(address)
