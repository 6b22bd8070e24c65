"""What every page needs from Streamlit: the address, widgets bound to it, and the choice of a study.

The address is kept twice: in the address bar, so that it can be copied, and in the session, because Streamlit empties
the bar when the page changes. Widgets follow the address: each shows what it says and writes back what a person
changes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any

import streamlit as st

from dashboard import formats, frames, palette
from dashboard.address import Address, CurveAxis
from dashboard.bound_widgets import bound
from dashboard.loading import load_row, load_study, load_view, reader
from orchestrator.errors import PltError, ServiceError
from orchestrator.records import StudyRecord
from orchestrator.spec.written_file import to_text

_ADDRESS, _NEXT, _LEFT = "address", "next-address", "left-addresses"
LATE_SECONDS = 3.0
"""For so long the address bar may say what it said before."""
CLICKABLE: dict[str, Any] = {"on_select": "rerun", "selection_mode": ["single-row", "single-cell"]}
"""How a table is drawn whose rows lead somewhere."""
_Key = tuple[tuple[str, str], ...]
STUDY_PAGES = (
    ("trade_offs", "Trade-offs", "scatter_plot"),
    ("compare", "Compare", "compare_arrows"),
    ("loops", "Loops", "autorenew"),
    ("search", "Search", "manage_search"),
    ("trial", "Trials", "labs"),
)
"""Pages about one study: file, title and icon."""


def address() -> Address:
    """What the address bar says, its gaps filled with what this session last looked at.

    A bar that still says what was left a moment ago is late, not turned back: the browser asks for a run (a refresh,
    say) before it has heard of the new address. Otherwise what was chosen last would be lost.
    """
    if _NEXT in st.session_state:
        go(st.session_state.pop(_NEXT))
    remembered: Address | None = st.session_state.get(_ADDRESS)
    said = st.query_params.to_dict()
    if remembered is not None and monotonic() - _left().get(_key(said), -math.inf) < LATE_SECONDS:
        st.query_params.from_dict(remembered.to_params())
        return remembered
    current = Address.from_params(said)
    return current.filled_from(remembered) if remembered is not None else current


def go(to: Address) -> None:
    """Make this the address, in the bar and in the session."""
    st.session_state[_ADDRESS] = to
    said, wanted = st.query_params.to_dict(), to.to_params()
    if said != wanted:
        now = monotonic()
        recent = {key: at for key, at in _left().items() if now - at < LATE_SECONDS}
        st.session_state[_LEFT] = {**recent, _key(said): now}
        st.session_state[_LEFT].pop(_key(wanted), None)
        st.query_params.from_dict(wanted)


def _left() -> dict[_Key, float]:
    """Addresses that were left lately, and when."""
    found: dict[_Key, float] = st.session_state.get(_LEFT, {})
    return found


def _key(params: Mapping[str, str]) -> _Key:
    return tuple(sorted(params.items()))


def turn_to(to: Address) -> None:
    """The same from a widget's callback, for the run that follows: what a callback sends to the bar may get lost, when
    another run begins before it was delivered.
    """
    st.session_state[_ADDRESS] = st.session_state[_NEXT] = to


def open_page(page: str, **changes: Any) -> None:
    """Go to another page about the same study, with some fields of the address changed."""
    go(replace(address(), **changes))
    st.switch_page(f"views/{page}.py", query_params=address().to_params())


def choice(label: str, field: str, options: Sequence[Any], value: Any, **how: Any) -> Any:
    """A select box that shows `value`, one of the options, and writes what is chosen into a field of the address."""
    index = list(options).index(value)
    return st.selectbox(label, options, index, **bound(f"choose-{field}", value, _writer(field)), **how)


def several(label: str, field: str, options: Sequence[Any], value: Sequence[Any], **how: Any) -> list[Any]:
    """A box of several choices, bound to a field of the address that is a tuple."""
    shown = list(value)
    return list(st.multiselect(label, options, shown, **bound(f"choose-{field}", shown, _writer(field)), **how))


def switch(label: str, field: str, options: Sequence[Any], value: Any, **how: Any) -> Any:
    """A row of buttons of which one is chosen, bound to a field of the address."""
    how |= bound(f"choose-{field}", value, _writer(field))
    return st.segmented_control(label, options, default=value, required=True, **how)


def _writer(field: str) -> Callable[[Any], None]:
    def write(value: Any) -> None:
        changes: dict[str, Any] = {field: tuple(value) if isinstance(value, list) else value}
        turn_to(Address(**changes) if field == "study" else replace(address(), **changes))

    return write


def study_names() -> list[str]:
    """Of all studies; ends the page with a word about it where they cannot be listed."""
    try:
        return reader().names()
    except PltError as error:
        st.error(str(error))
        st.stop()


def choose_study() -> StudyRecord | None:
    """The head of every page about one study: its choice, state and question; None, with a clear page, without one."""
    names = study_names()
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
    moved: dict[str, Any] = {}
    for name in names:
        with suppress(PltError):  # its own page says what is wrong with it
            moved[name] = load_row(name)["moved"]
    return max(moved, key=lambda name: moved[name]) if moved else names[0]


def spec_text(study: StudyRecord) -> str:
    """The study file, as it was resolved."""
    return load_view(study.name).derived("spec", lambda: to_text(study.spec)) if study.spec else ""


def written_columns(columns: Mapping[str, frames.Column]) -> dict[str, Any]:
    """How Streamlit is to write and head columns."""
    return {
        name: st.column_config.Column(column.title, help=column.help)
        if column.format is None
        else st.column_config.NumberColumn(column.title, format=column.format, help=column.help)
        for name, column in columns.items()
    }


def clicked_row(table: Any) -> int | None:
    """The row that a person clicked, on its box or on any cell, of what a table drawn with `CLICKABLE` returned."""
    selection = table["selection"]
    rows = [*selection["rows"], *(row for row, _ in selection["cells"])]
    return int(rows[0]) if rows else None


def badge(state: str, message: str = "") -> None:
    """A study's or trial's state as a coloured badge with its icon, and why."""
    colour, icon = palette.state_badge(state)
    st.markdown(f":{colour}-badge[{icon} {state}] {message}")


def choose_curve(study: StudyRecord, metrics: Sequence[str]) -> tuple[str, CurveAxis, int]:
    """Metric, horizontal axis and smoothing of the learning curves: the address', else the first objective's, else a
    loss'."""
    here = address()
    preferred = (here.curve, *(objective.metric for objective in study.objectives), "val/loss", "train/loss", *metrics)
    value = next(metric for metric in preferred if metric in metrics)
    left, middle, right = st.columns([2, 2, 2], vertical_alignment="bottom")
    with left:
        metric = choice("Curve", "curve", metrics, value, format_func=formats.title)
    with middle:
        by = switch("Over", "by", ("step", "tokens", "time"), here.by or "step")
    with right:
        smooth = choice(
            "Smoothing",
            "smooth",
            (1, 3, 5, 10, 25, 50),
            here.smooth if here.smooth in (1, 3, 5, 10, 25, 50) else 1,
            format_func=lambda reports: "none" if reports == 1 else f"mean of {reports} reports",
        )
    return metric, by, smooth


_IMAGE_FORMAT = "image-format"


def choose_image_format() -> None:
    """What the camera above each chart saves."""
    st.session_state[_IMAGE_FORMAT] = st.session_state.get(_IMAGE_FORMAT, "PNG")
    st.segmented_control(
        "Camera of charts saves",
        ("PNG", "SVG"),
        key=_IMAGE_FORMAT,
        required=True,
        help="The camera is in the bar that appears above a chart when the pointer is over it.",
    )


def image_config(name: str) -> dict[str, Any]:
    """A chart's bar of buttons: without the maker's logo, its camera saving under this name."""
    kind = str(st.session_state.get(_IMAGE_FORMAT, "PNG")).lower()
    return {"displaylogo": False, "toImageButtonOptions": {"format": kind, "filename": name, "scale": 2}}


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
