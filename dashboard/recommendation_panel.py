"""Which loop count, window and gate to take, and how sure that is, said at the head of the Loops page."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from dashboard.study_view import StudyView
from orchestrator.recommendation import Recommendation, markdown, recommend
from orchestrator.recommendation.words import Row, cost_rows, headline, how_sure, notes, step_note, step_rows


def recommendation_panel(view: StudyView) -> None:
    """The answer of `plt recommend`, with its evidence."""
    found: Recommendation = view.derived("recommendation", lambda: recommend(view.study))
    said = f"**{headline(found)}**. {' '.join(how_sure(found))}"
    if found.configuration is None:
        st.warning(said, icon=":material/block:")
    elif found.sure:
        st.success(said, icon=":material/recommend:")
    else:
        st.info(said, icon=":material/help:")
    for rows, alt in ((cost_rows(found) if found.best else [], "costs"), (step_rows(found), "steps")):
        if len(rows) > 1:
            st.dataframe(_frame(rows), hide_index=True, alt=f"The recommendation's {alt} by loop count")
    if found.steps:
        st.caption(step_note(found)[:1].upper() + step_note(found)[1:] + ".")
    if lines := list(notes(found)):
        with st.expander("What this rests on"):
            st.markdown("\n".join(f"- {line}" for line in lines))
    if found.best:
        with st.expander("Copy as Markdown", icon=":material/content_copy:"):
            st.code(markdown(found), language="markdown")


def _frame(rows: Sequence[Row]) -> pd.DataFrame:
    return pd.DataFrame(rows[1:], columns=list(rows[0]))
