"""Page: machines and devices, what every running trial does, what waits and why."""

import os

import pandas as pd
import streamlit as st

from dashboard import frames, session
from dashboard.launch import RAY_DASHBOARD
from dashboard.loading import REFRESH, load_cluster, load_row, load_study, reader
from orchestrator.cluster_state import ClusterState
from orchestrator.errors import PltError, ServiceError
from orchestrator.machine import machine_state
from orchestrator.records import StudyRecord


@st.fragment(run_every=REFRESH)
def render() -> None:
    """Draw the page, again every few seconds."""
    _machine()
    _ray()
    _work()


def _machine() -> None:
    st.subheader("This machine", help="Where the dashboard runs; drivers that it starts run here, too.")
    state = machine_state()
    with st.container(horizontal=True, gap="small"):
        st.metric("Cores", f"{state.cores}", border=True)
        st.metric("CPU in use", f"{state.cpu_percent:.0f} %", border=True, help="All cores, since the last look.")
        st.metric("Load", f"{state.load:.1f}", border=True, help="Processes that run or wait for a core.")
        st.metric("Memory free", frames.gib(state.memory_free), border=True, help=f"Of {frames.gib(state.memory)}.")
        st.metric("Disk free", frames.gib(state.disk_free), border=True, help="Where PLT_HOME is.")


def _ray() -> None:
    address = os.environ.get(RAY_DASHBOARD)
    if not address:
        return
    st.subheader("Ray cluster", help=f"From Ray's dashboard at {address}.")
    try:
        state = load_cluster(address)
    except ServiceError as error:
        st.warning(str(error), icon=":material/cloud_off:")
        return
    _nodes(state)
    _actors(state)


def _nodes(state: ClusterState) -> None:
    alive = [node for node in state.nodes if node.alive]
    st.caption(f"{len(alive)} of {len(state.nodes)} nodes are alive.")
    st.dataframe(frames.nodes_frame(state), hide_index=True, alt="Nodes of the cluster with their devices")


def _actors(state: ClusterState) -> None:
    waiting = [actor for actor in state.actors if actor.state == "PENDING_CREATION"]
    if waiting:
        st.warning(f"{len(waiting)} actors wait for a place on a node.", icon=":material/hourglass_empty:")
    if state.actors:
        st.dataframe(frames.actors_frame(state), hide_index=True, alt="Living actors with node and reservation")
    else:
        st.caption("No actor lives.")


def _work() -> None:
    st.subheader("What runs", help="From the file that every driver rewrites about once a second.")
    parts = []
    for study in _driven():
        live = reader().live(study.name)
        if live.queued_because:
            st.warning(f"{study.name} waits: {live.queued_because}", icon=":material/hourglass_empty:")
        running = frames.running_frame(study, live)
        parts.append(running.assign(study=study.name, driver=study.driver))
    if not parts:
        st.caption("Nobody drives a study of this home now.")
        return
    frame = pd.concat(parts, ignore_index=True)
    st.dataframe(
        frame[["study", "driver", *(name for name in frame if name not in ("study", "driver"))]],
        hide_index=True,
        column_config={"done": st.column_config.ProgressColumn("Done", format="%d %%", max_value=100)},
        alt="Every running trial of every study",
    )


def _driven() -> list[StudyRecord]:
    """Studies with a living driver; what cannot be read is told on the Studies page."""
    driven = []
    for name in session.study_names():
        try:
            if load_row(name)["state"] in ("RUNNING", "PAUSED", "CREATED"):
                driven.append(load_study(name))
        except PltError:
            continue
    return [study for study in driven if study.driver is not None]


if __name__ == "__main__":
    render()
