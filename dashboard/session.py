"""What every page needs from Streamlit: the address, widgets bound to it, and the choice of a study.

The address is kept twice: in the address bar, so that it can be copied, and in the session, because Streamlit empties
the bar when the page changes. Widgets follow the address: each is set from it before it is drawn, and writes back on
change.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import streamlit as st

from dashboard import formats, frames, palette
from dashboard.address import Address, CurveAxis
from dashboard.loading import load_study, reader
from orchestrator.errors import PltError, ServiceError
from orchestrator.records import StudyRecord

_ADDRESS = "address"


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
    changes: dict[str, Any] = {field: tuple(value) if isinstance(value, list) else value}
    go(Address(**changes) if field == "study" else replace(address(), **changes))


def choose_study() -> StudyRecord | None:
    """The head of every page about one study: its choice, state and question; None, with a clear page, without one."""
    names = reader().names()
    if not names:
        nothing_yet()
        return None
    here = address()
    if here.study not in names:
        if here.study is not None:
            st.warning(f"There is no study {here.study!r} in {reader().home.root}; showing another one.")
        here = Address(study=_latest(names))
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


def _latest(names: Sequence[str]) -> str:
    """The study that moved last, of those that can be read."""
    moved = {}
    for name in names:
        with suppress(PltError):  # its own page says what is wrong with it
            moved[name] = frames.last_moved(load_study(name))
    return max(moved, key=lambda name: moved[name]) if moved else names[0]


def badge(state: str, message: str = "") -> None:
    """A study's or trial's state as a coloured badge with its icon, and why."""
    colour, icon = palette.state_badge(state)
    st.markdown(f":{colour}-badge[{icon} {state}] {message}")


def choose_curve(study: StudyRecord, metrics: Sequence[str]) -> tuple[str, CurveAxis]:
    """Metric and horizontal axis of the learning curves: the address', else the first objective, else a loss."""
    here = address()
    preferred = (here.curve, *(objective.metric for objective in study.objectives), "val/loss", "train/loss", *metrics)
    value = next(metric for metric in preferred if metric in metrics)
    left, right, _ = st.columns([2, 1, 2], vertical_alignment="bottom")
    with left:
        metric = choice("Curve", "curve", metrics, value, format_func=formats.title)
    with right:
        by = switch("Over", "by", ("step", "tokens"), here.by or "step", label_visibility="collapsed")
    return metric, by


def nothing_yet() -> None:
    """The page of an empty home."""
    home = reader().home.root
    st.header("No studies yet")
    st.markdown(f"This home, `{home}`, holds no study. Start one, and it appears here while it runs:")
    st.code("plt run experiments/quickstart.yaml", language="bash")
    st.caption("A home is the folder that PLT_HOME names, by default `plt-home` where the command was run.")


def tracking_notice(error: ServiceError) -> None:
    """Say that curves cannot be shown, and that the rest can."""
    st.info(f"No learning curves: {error}. Everything else on this page comes from the study's own storage.")
