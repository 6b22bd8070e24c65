"""What every page needs from Streamlit: the reader, the address and the choice of a study.

The address is kept twice: in the address bar, so that it can be copied, and in the session, because Streamlit empties the
bar when the page changes. Widgets follow the address: each is set from it before it is drawn, and writes back on change.
Caches hold a bounded number of records and curves, for all sessions together.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from dashboard import formats, palette
from dashboard.address import Address
from orchestrator.errors import PltError, ServiceError
from orchestrator.home import Home
from orchestrator.records import StudyRecord
from orchestrator.tracking.reader import Curve, Reader, RunLink

REFRESH = 5.0
"""Seconds between two looks at what is new."""
_ADDRESS = "address"


@st.cache_resource(max_entries=4)
def _reader(root: str) -> Reader:
    return Reader(Home.from_environment())


def reader() -> Reader:
    """The reader of the home that `PLT_HOME` names."""
    return _reader(str(Home.from_environment().root))


@st.cache_resource(ttl=REFRESH / 2, max_entries=256, show_spinner=False)
def _study(root: str, name: str) -> StudyRecord:
    return reader().study(name)


def load_study(name: str) -> StudyRecord:
    """A study, at most a few seconds old; a PltError when it cannot be read."""
    return _study(str(reader().home.root), name)


@st.cache_data(ttl=REFRESH, max_entries=256, show_spinner=False)
def _curves(root: str, uri: str, study: str, numbers: tuple[int, ...], metric: str) -> dict[int, Curve]:
    return reader().curves(study, numbers, metric)


def load_curves(study: str, numbers: Sequence[int], metric: str) -> dict[int, Curve]:
    """Curves by trial number; a ServiceError when MLflow cannot be read."""
    home = reader().home
    return _curves(str(home.root), home.mlflow_uri, study, tuple(numbers), metric)


@st.cache_data(ttl=REFRESH, max_entries=256, show_spinner=False)
def _curve_metrics(root: str, uri: str, study: str, numbers: tuple[int, ...]) -> list[str]:
    return reader().curve_metrics(study, numbers)


def load_curve_metrics(study: str, numbers: Sequence[int]) -> list[str]:
    """Names of the metrics that have curves; a ServiceError when MLflow cannot be read."""
    home = reader().home
    return _curve_metrics(str(home.root), home.mlflow_uri, study, tuple(numbers))


@st.cache_data(ttl=10 * REFRESH, max_entries=256, show_spinner=False)
def _run_link(root: str, uri: str, study: str, number: int) -> RunLink | None:
    return reader().run_link(study, number)


def load_run_link(study: str, number: int) -> RunLink | None:
    """Where a trial's MLflow run is; a ServiceError when MLflow cannot be read."""
    home = reader().home
    return _run_link(str(home.root), home.mlflow_uri, study, number)


def address() -> Address:
    """What the address bar says, its gaps filled with what this session last looked at."""
    current = Address.from_params(st.query_params)
    remembered = st.session_state.get(_ADDRESS)
    return current.filled_from(remembered) if remembered is not None else current


def go(to: Address) -> None:
    """Make this the address, in the bar and in the session."""
    st.session_state[_ADDRESS] = to
    if st.query_params.to_dict() != to.to_params():
        st.query_params.from_dict(to.to_params())


def choice(label: str, field: str, options: Sequence[Any], value: Any, **how: Any) -> Any:
    """A select box that shows `value` and writes what is chosen into a field of the address."""
    return _bound(st.selectbox, field, value, label, options, **how)


def several(label: str, field: str, options: Sequence[Any], value: Sequence[Any], **how: Any) -> list[Any]:
    """A box of several choices, bound to a field of the address that is a tuple."""
    return list(_bound(st.multiselect, field, list(value), label, options, **how))


def switch(label: str, field: str, options: Sequence[Any], value: Any, **how: Any) -> Any:
    """A row of buttons of which one is chosen, bound to a field of the address."""
    return _bound(st.segmented_control, field, value, label, options, required=True, **how)


def _bound(widget: Callable[..., Any], field: str, value: Any, label: str, options: Sequence[Any], **how: Any) -> Any:
    key = f"choose-{field}"
    st.session_state[key] = value
    return widget(label, options, key=key, on_change=_write_back, args=(field, key), **how)


def _write_back(field: str, key: str) -> None:
    value = st.session_state[key]
    changed = tuple(value) if isinstance(value, list) else value
    go(Address(study=changed) if field == "study" else replace(address(), **{field: changed}))


def choose_study() -> StudyRecord | None:
    """The head of every page about one study: its choice, state and question. None, and a clear page, when there is none."""
    names = reader().names()
    if not names:
        nothing_yet()
        return None
    here = address()
    if here.study not in names:
        if here.study is not None:
            st.warning(f"There is no study {here.study!r} in {reader().home.root}; showing another one.")
        here = Address(study=names[-1])
    go(here)
    left, right = st.columns([2, 5], vertical_alignment="bottom")
    with left:
        name = choice("Study", "study", names, here.study)
    try:
        study = load_study(name)
    except PltError as error:
        st.error(str(error))
        return None
    with right:
        badge(study.state.value, study.message)
        st.markdown(study.question or "*no question given*")
    return study


def badge(state: str, message: str = "") -> None:
    """A study's or trial's state as a coloured badge with its icon, and why."""
    colour, icon = palette.state_badge(state)
    st.markdown(f":{colour}-badge[{icon} {state}] {message}")


def nothing_yet() -> None:
    """The page of an empty home."""
    home = reader().home.root
    st.header("No studies yet")
    st.markdown(
        f"This home, `{home}`, holds no study. Start one, and it appears here while it runs:"
    )
    st.code("plt run experiments/quickstart.yaml", language="bash")
    st.caption("A home is the folder that PLT_HOME names, by default `plt-home` where the command was run.")


def tracking_notice(error: ServiceError) -> None:
    """Say that curves cannot be shown, and that the rest can."""
    st.info(f"No learning curves: {error}. Everything else on this page comes from the study's own storage.")


def metric_name(metric: str) -> str:
    """A metric in a list of choices."""
    return formats.title(metric)
