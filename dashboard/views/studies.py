"""Page: every study, how it stands and what it found so far. A row opens the study's trade-offs."""

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from dashboard import formats, frames, palette, session
from dashboard.address import Address
from dashboard.loading import REFRESH, load_study, reader
from orchestrator.errors import PltError
from orchestrator.records import StudyRecord, StudyState


@st.fragment(run_every=REFRESH)
def render() -> None:
    """Draw the page, again every few seconds."""
    names = reader().names()
    if not names:
        session.nothing_yet()
        return
    studies = _load(names)
    frame = frames.studies_frame(studies).sort_values(["created", "study"], ascending=[False, True], ignore_index=True)
    _totals(studies)  # newest first: an order that does not change between drawing a row and clicking it
    shown = frame[["study", "state", "progress", "configurations", "trials", "failures", "best", "moved", "question"]]
    event = st.dataframe(
        shown.style.map(_state_style, subset=["state"]),
        key="studies",
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        column_config=_columns(),
        alt="Every study with its state, progress and best result",
    )
    st.caption("Click the box at the left of a row to open the study. All times are UTC.")
    if rows := event["selection"]["rows"]:
        target = Address(study=str(frame["study"].iloc[rows[0]]))
        session.go(target)
        st.switch_page("views/trade_offs.py", query_params=target.to_params())


def _load(names: list[str]) -> list[StudyRecord]:
    """Every study that can be read; what is wrong with the others is said on the page."""
    studies = []
    for name in names:
        try:
            studies.append(load_study(name))
        except PltError as error:
            st.warning(f"{name}: {error}")
    return studies


def _totals(studies: list[StudyRecord]) -> None:
    trials = [trial for study in studies for trial in study.trials]
    numbers = {
        "Studies": len(studies),
        "Running now": sum(1 for study in studies if study.state is StudyState.RUNNING),
        "Trials finished": sum(1 for trial in trials if trial.state.finished),
        "Trials failed": sum(1 for trial in trials if trial.failure is not None),
    }
    for column, (label, value) in zip(st.columns(len(numbers)), numbers.items(), strict=True):
        column.metric(label, value, border=True)


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
        "configurations": column.TextColumn("Configurations", help="Done, of the study's budget."),
        "trials": column.NumberColumn("Trials", help=formats.TERMS["seed"]),
        "failures": column.TextColumn("Failures", help="Failed trials by reason."),
        "best": column.TextColumn("Best so far", help="First objective; feasible and complete configurations only."),
        "moved": column.DatetimeColumn("Last activity", format="distance"),
    }


if __name__ == "__main__":
    render()
