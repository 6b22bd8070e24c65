"""Page: accuracy against latency and against KV memory, one point per configuration, with intervals and the front.

Points that are clicked or boxed are added to the comparison, which lives in the address and so survives every
refresh.
"""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from dashboard import charts, comparison, formats, frames, session
from dashboard.loading import REFRESH
from orchestrator.configurations import ConfigurationRecord, group
from orchestrator.constraints import parse_constraint
from orchestrator.records import StudyRecord

_USUAL_COSTS = ("decode/ms_per_token", "kv/bytes_per_sequence")


@st.fragment(run_every=REFRESH)
def render() -> None:
    """Draw the page, again every few seconds."""
    study = session.choose_study()
    if study is None:
        return
    configurations = group(study)
    frame = frames.configurations_frame(study, configurations)
    metrics = frames.metrics_of(study, configurations)
    if not metrics:
        _no_points(study)
        return
    y, costs = _choose_metrics(study, metrics)
    for column, side, x in zip(st.columns(2), ("left", "right"), costs, strict=True):
        with column:
            _chart(study, frame, x, y, side)
    _explain(frame, study)
    _comparison_bar(configurations)
    _table(study, frame, metrics)


def _no_points(study: StudyRecord) -> None:
    if failures := frames.failures_text(study):
        st.error(f"No configuration has a result: {failures}. The Trial page shows what went wrong.")
        st.page_link("views/trial.py", label="See the trials", icon=":material/labs:")
    elif study.trials:
        st.info("No configuration has finished yet; points appear here as trials complete.")
    else:
        st.info(f"This study has no trials yet. Its budget is {study.budget} configurations.")


def _choose_metrics(study: StudyRecord, metrics: Sequence[str]) -> tuple[str, tuple[str, str]]:
    """The vertical axis and the two horizontal ones: the address', else the objectives, else the usual costs."""
    here = session.address()
    objectives = [objective.metric for objective in study.objectives if objective.metric in metrics]
    usual = list(dict.fromkeys((*objectives, *_USUAL_COSTS, *metrics)))
    y = _first(metrics, here.y, *usual)
    costs = [metric for metric in usual if metric != y] or [y]
    left = _first(metrics, here.left, *costs)
    right = _first(metrics, here.right, *(metric for metric in costs if metric != left), left)
    columns = st.columns(3)
    with columns[0]:
        y = session.choice("Accuracy axis", "y", metrics, y, format_func=formats.title, help=formats.help_text(y))
    with columns[1]:
        left = session.choice(
            "Left cost axis", "left", metrics, left, format_func=formats.title, help=formats.help_text(left)
        )
    with columns[2]:
        right = session.choice(
            "Right cost axis", "right", metrics, right, format_func=formats.title, help=formats.help_text(right)
        )
    return y, (left, right)


def _first(known: Sequence[str], *wished: str | None) -> str:
    return next(metric for metric in wished if metric is not None and metric in known)


def _chart(study: StudyRecord, frame: pd.DataFrame, x: str, y: str, side: str) -> None:
    figure = charts.trade_off_figure(
        frame,
        x,
        y,
        directions={metric: formats.direction(study, metric) for metric in (x, y)},
        constraints=[parse_constraint(text) for text in study.constraints],
        picks=session.address().picks,
    )
    st.plotly_chart(
        figure,
        key=f"chart-{side}",
        on_select=lambda: _pick(f"chart-{side}"),
        selection_mode=("points", "box", "lasso"),
        alt=f"{formats.title(y)} against {formats.title(x)}, one point per configuration",
    )


def _pick(key: str) -> None:
    """Add what was clicked or boxed to the comparison; an empty selection changes nothing."""
    if fingerprints := charts.picked(st.session_state[key]):
        session.go(session.address().toggled(fingerprints))


def _explain(frame: pd.DataFrame, study: StudyRecord) -> None:
    counts = ", ".join(f"{count} {standing}" for standing, count in frame["standing"].value_counts().items())
    total = f"{len(frame)} configuration{'s' * (len(frame) != 1)}"
    note = "Click a point to add it to the comparison or take it out, or draw a box around several."
    bars = "Bars are 95 % intervals over seeds; larger markers have wider windows; faded points are dominated."
    st.caption(
        f"{total}: {counts}. {bars} {note}",
        help=formats.TERMS["front"],
    )
    if study.constraints and not (frame["standing"].isin(["front", "dominated"])).any():
        st.warning(f"No feasible configuration yet: none meets {' and '.join(study.constraints)}.")


def _comparison_bar(configurations: Sequence[ConfigurationRecord]) -> None:
    names = dict(zip((one.fingerprint for one in configurations), comparison.labels(configurations), strict=True))
    picks = [pick for pick in session.address().picks if pick in names]
    left, right = st.columns([7, 1], vertical_alignment="bottom")
    with left:
        session.several("Comparison", "picks", list(names), picks, format_func=names.get, placeholder="nothing chosen")
    if right.button("Compare", disabled=not picks, type="primary", width="stretch"):
        st.switch_page("views/compare.py", query_params=session.address().to_params())


def _table(study: StudyRecord, frame: pd.DataFrame, metrics: Sequence[str]) -> None:
    shown, config = frames.display(frame, study.search, metrics)
    st.dataframe(
        shown,
        hide_index=True,
        column_config={
            name: st.column_config.NumberColumn(column.title, format=column.format, help=column.help)
            for name, column in config.items()
        },
        alt="Every configuration with its metrics and intervals",
    )
    st.download_button(
        "Download CSV",
        frame.to_csv(index=False),
        file_name=f"{study.name}-configurations.csv",
        mime="text/csv",
        icon=":material/download:",
        on_click="ignore",
    )


if __name__ == "__main__":
    render()
