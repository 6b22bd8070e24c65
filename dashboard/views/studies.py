"""Page: every study, how it stands and what it found so far. A row opens the study."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from dashboard import access, formats, frames, palette, session
from dashboard.address import Address
from dashboard.loading import REFRESH, load_row
from orchestrator.errors import PltError

_SHOWN = ("study", "state", "progress", "configurations", "left", "failures", "best", "moved", "question")


@st.fragment(run_every=REFRESH)
def render() -> None:
    """Draw the page, again every few seconds."""
    names = session.study_names()
    if not names:
        session.nothing_yet()
        return
    rows = _load(names)
    frame = frames.studies_frame(rows)
    now = datetime.now(UTC)
    frame["left"] = [frames.left_text(ends, now) for ends in frame["ends"]]
    _totals(frame)  # newest first: an order that does not change between drawing a row and clicking it
    event = st.dataframe(
        frame[list(_SHOWN)].style.map(_state_style, subset=["state"]),
        key="studies",
        hide_index=True,
        **session.CLICKABLE,
        column_config=_columns(),
        alt="Every study with its state, progress and best result",
    )
    _below(frame)
    if (row := session.clicked_row(event)) is not None:
        target = Address(study=str(frame["study"].iloc[row]))
        session.go(target)
        st.switch_page("views/study.py", query_params=target.to_params())


def _load(names: Sequence[str]) -> list[dict[str, object]]:
    """Every study that can be read; what is wrong with the others is said on the page."""
    rows = []
    for name in names:
        try:
            rows.append(load_row(name))
        except PltError as error:
            st.warning(f"{name}: {error}")
    return rows


def _totals(frame: pd.DataFrame) -> None:
    numbers = {
        "Studies": len(frame),
        "Running now": int((frame["state"] == "RUNNING").sum()),
        "Trials finished": int(frame["trials"].sum()),
        "With failures": int((frame["failures"] != "").sum()),
    }
    with st.container(horizontal=True, gap="small"):
        for label, value in numbers.items():
            st.metric(label, f"{value:,}", border=True)


def _below(frame: pd.DataFrame) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption("Click a row to open the study. All times are UTC.")
        st.download_button(
            "CSV",
            frame.drop(columns="ends").to_csv(index=False),
            file_name="studies.csv",
            mime="text/csv",
            icon=":material/download:",
            on_click="ignore",
        )
        if not access.read_only():
            st.page_link("views/submit.py", label="Submit a study", icon=":material/add_circle:")


def _state_style(state: object) -> str:
    return f"background-color: {palette.state_colour(str(state))}40"


def _columns() -> dict[str, ColumnConfig]:
    column = st.column_config
    return {
        "study": column.TextColumn("Study", pinned=True),
        "state": column.TextColumn("State", help="RUNNING only while a living driver works on it."),
        "question": column.TextColumn("Question", width="medium"),
        "progress": column.ProgressColumn(
            "Progress", format="%d %%", max_value=100, help="Share of the budget's configurations that are done."
        ),
        "configurations": column.TextColumn("Configurations", help=formats.TERMS["budget"]),
        "left": column.TextColumn("Time left", help="At the pace of the latest trials, at most."),
        "failures": column.TextColumn("Failures", help="Failed trials by reason."),
        "best": column.TextColumn("Best so far", help="First objective; feasible and complete configurations only."),
        "moved": column.DatetimeColumn("Last activity", format="distance"),
    }


if __name__ == "__main__":
    render()
