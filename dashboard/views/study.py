"""Page: one study: how it stands, what runs now, what failed and why, the front so far, and buttons to act on it."""

from datetime import UTC, datetime

import streamlit as st

from dashboard import actions, formats, frames, session
from dashboard.loading import REFRESH, load_view, reader
from dashboard.study_view import StudyView
from orchestrator.driver_launch import DriverLaunch
from orchestrator.home import Home
from orchestrator.records import StudyRecord, StudyState
from orchestrator.time_left import expected_end

_FRONT_ROWS = 20


@st.fragment(run_every=REFRESH)
def render() -> None:
    """Draw the page, again every few seconds."""
    study = session.choose_study()
    if study is None:
        return
    actions.control_bar(study)
    actions.show_what_was_said(study)
    _asked(study)
    _driver_output(study)
    _numbers(study, load_view(study.name))
    _running(study)
    left, right = st.columns([3, 2], gap="large")
    with left:
        _front(load_view(study.name))
    with right:
        _failures(study)
    _links()
    with st.expander("The study file"):
        st.code(session.spec_text(study), language="yaml")


def _asked(study: StudyRecord) -> None:
    for request in reader().pending(study.name):
        st.info(
            f"Asked to {request.kind.value.replace('_', ' ')} at {formats.moment(request.at)} by {request.by}; the "
            "driver answers at its next report.",
            icon=":material/hourglass_empty:",
        )


def _driver_output(study: StudyRecord) -> None:
    """What a driver that was started here printed: at once when it did not come to drive, else folded."""
    launch = DriverLaunch(Home.from_environment(), study.name)
    latest, lines = launch.latest(), launch.output()
    if latest is None:
        return
    if study.driver is None and latest.alive:
        st.info("The driver is starting or ending; Ray takes some seconds.", icon=":material/hourglass_top:")
    ended_badly = study.driver is None and not latest.alive and study.state is StudyState.CREATED
    refused = [line for line in lines if line.startswith("plt: ")]
    if ended_badly or (refused and study.driver is None and not latest.alive):
        st.error(refused[-1] if refused else "The driver ended without starting a trial.", icon=":material/error:")
    with st.expander(f"Output of the driver (process {latest.pid})", expanded=ended_badly):
        st.code("\n".join(lines) or "nothing yet", language=None, height=240 if len(lines) > 10 else "content")


def _numbers(study: StudyRecord, view: StudyView) -> None:
    done = sum(1 for one in view.configurations if one.complete)
    failed = sum(1 for trial in study.trials if trial.failure is not None)
    finished = sum(1 for trial in study.trials if trial.state.finished)
    left = frames.left_text(expected_end(study), datetime.now(UTC))
    best = sum(1 for one in view.configurations if one.on_front)
    with st.container(horizontal=True, gap="small"):
        st.metric("Configurations", f"{done} of {study.budget}", border=True, help=formats.TERMS["budget"])
        st.metric("Trials finished", f"{finished:,}", border=True, help=formats.TERMS["seed"])
        st.metric("Failed", f"{failed:,}", border=True)
        st.metric("On the front", f"{best:,}", border=True, help=formats.TERMS["front"])
        st.metric("Time left", left or "-", border=True, help="At the pace of the latest trials, at most.")
    st.progress(min(1.0, done / study.budget) if study.budget else 0.0)


def _running(study: StudyRecord) -> None:
    if study.driver is None:
        return
    live = reader().live(study.name)
    if live.queued_because:
        st.warning(f"Waiting: {live.queued_because}", icon=":material/hourglass_empty:")
    frame = frames.running_frame(study, live)
    if frame.empty:
        st.caption("No trial runs at this moment.")
        return
    st.subheader("Running now")
    st.dataframe(
        frame,
        hide_index=True,
        column_config={"done": st.column_config.ProgressColumn("Done", format="%d %%", max_value=100)},
        alt="Running trials and how far each is",
    )


def _front(view: StudyView) -> None:
    st.subheader("Front so far", help=formats.TERMS["front"])
    best = view.frame[view.frame["standing"] == "front"]
    if best.empty:
        complete = (view.frame["standing"].isin(["infeasible", "dominated"])).any()
        st.caption(
            "No feasible configuration is complete: every one breaks a constraint." if complete else "Nothing yet."
        )
        return
    metrics = [one.metric for one in view.study.objectives if one.metric in view.metrics]
    shown, config = frames.display(best.head(_FRONT_ROWS), view.study.search, metrics)
    st.dataframe(
        shown.drop(columns="standing"),
        hide_index=True,
        column_config=session.written_columns(config),
        alt="Configurations on the front with the means of the objectives",
    )
    if len(best) > _FRONT_ROWS:
        st.caption(f"{_FRONT_ROWS} of {len(best)}; the Trade-offs page has all.")


def _failures(study: StudyRecord) -> None:
    st.subheader("Failures by reason")
    frame = frames.failures_frame(study)
    if frame.empty:
        st.caption("No trial has failed.")
        return
    event = st.dataframe(
        frame,
        key="failures",
        hide_index=True,
        **session.CLICKABLE,
        alt="Failed trials, newest first, with reason and message",
    )
    st.caption("Click a row to see why.")
    if (row := session.clicked_row(event)) is not None:
        session.open_page("trial", trial=int(frame["trial"].iloc[row]))


def _links() -> None:
    with st.container(horizontal=True):
        for page, label, icon in session.STUDY_PAGES:
            st.page_link(f"views/{page}.py", label=label, icon=f":material/{icon}:")


if __name__ == "__main__":
    render()
