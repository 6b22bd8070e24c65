"""Which configuration to take, said at the head of the Loops page."""

import streamlit as st

from dashboard import formats
from dashboard.advice import advise
from dashboard.study_view import StudyView


def recommendation_panel(view: StudyView) -> None:
    """The best feasible configuration by the first objective, and how sure that is."""
    objectives = [one.metric for one in view.study.objectives]
    if not set(objectives) & set(view.metrics):
        return
    metric, *costs = objectives
    known = {one.fingerprint: one for one in view.configurations}
    found = advise(view.frame, known, metric, costs, formats.direction(view.study, metric))
    if found is None:
        st.warning("No feasible configuration is complete, so nothing can be recommended.", icon=":material/block:")
    else:
        st.success(f"Best by {formats.title(metric)}: {found.text}", icon=":material/recommend:")
