"""Page: what each loop gains and costs, what it does to the hidden state, and which loop count to take."""

from collections.abc import Mapping, Sequence

import streamlit as st

from dashboard import comparison, formats, frames, loop_charts, session
from dashboard.loading import REFRESH, load_loop_tables, load_view
from dashboard.recommendation_panel import recommendation_panel
from dashboard.study_view import StudyView
from orchestrator.configurations import ConfigurationRecord
from orchestrator.formats import with_unit

_COSTS = ("decode/ms_per_token", "decode/latency_ratio", "kv/bytes_per_sequence")
_MOST = 6  # configurations whose diagnostics are drawn beside each other


@st.fragment(run_every=REFRESH)
def render() -> None:
    """Draw the page, again every few seconds."""
    study = session.choose_study()
    if study is None:
        return
    view = load_view(study.name)
    recommendation_panel(view)
    if not view.metrics:
        st.info("No configuration has a result yet; gains appear here as trials complete.")
        return
    _gains(view)
    _diagnostics(view)


def _gains(view: StudyView) -> None:
    metric = view.study.objectives[0].metric
    direction = formats.direction(view.study, metric)
    costs = [cost for cost in _COSTS if cost in view.metrics]
    rows = loop_charts.gains_frame(view.frame, metric, costs, direction)
    st.subheader("Gain against cost, by loop count", help=formats.TERMS["num_loops"])
    if rows.empty:
        st.caption("No feasible configuration is complete.")
        return
    left, right = st.columns([2, 3], gap="large")
    with left:
        st.plotly_chart(
            loop_charts.gains_figure(rows, metric),
            key="gains",
            config=session.image_config(f"{view.study.name}-gains"),
            alt=f"{formats.title(metric)} of the best feasible configuration of each loop count",
        )
    with right:
        shown = rows[["num_loops", "label"]].rename(columns={"num_loops": "R", "label": "configuration"})
        shown[formats.title(metric)] = [_or_dash(metric, value) for value in rows[metric]]
        shown["gain over fewer loops"] = [_signed(metric, value) for value in rows["gain"]]
        for name in (cost for cost in costs if cost != metric):
            shown[formats.title(name)] = [_or_dash(name, value) for value in rows[name]]
        shown["seeds"] = rows["seeds"]
        st.dataframe(shown, hide_index=True, alt="The best configuration of each loop count with gains and costs")
        st.caption("The best feasible configuration of each loop count, by the first objective's mean over seeds.")


def _or_dash(metric: str, value: float) -> str:
    return "-" if value != value else with_unit(metric, value)


def _signed(metric: str, value: float) -> str:
    return "-" if value != value else f"{'+' if value > 0 else ''}{with_unit(metric, value)}"


def _diagnostics(view: StudyView) -> None:
    st.subheader("What each loop does", help="Measured once on every trained model, on the same held-out sequences.")
    measured = [one for one in view.configurations if loop_charts.diagnostics([one])]
    if not measured:
        st.caption(
            "No trial of this study has loop diagnostics: none is complete, or the file says "
            "`diagnostics: {sequences: 0}`."
        )
        return
    chosen = _chosen(view, measured)
    names = loop_charts.diagnostics(chosen)
    labelled = dict(zip(comparison.labels(chosen), chosen, strict=True))
    for start in range(0, len(names), 3):
        row = names[start : start + 3]
        for column, name in zip(st.columns(3), row, strict=False):
            with column:
                st.markdown(f"**{loop_charts.diagnostic_title(name)}**", help=loop_charts.diagnostic_help(name) or None)
                st.plotly_chart(
                    loop_charts.diagnostic_figure(labelled, name),
                    key=f"loops-{name}",
                    config=session.image_config(f"{view.study.name}-{name}"),
                    alt=f"{loop_charts.diagnostic_title(name)} by loop, one line per configuration",
                )
    _heads(view, labelled)


def _heads(view: StudyView, labelled: Mapping[str, ConfigurationRecord]) -> None:
    """Maps by layer and head, one row of them per configuration."""
    tables = {
        label: load_loop_tables(view.study.name, [trial.number for trial in one.trials])
        for label, one in labelled.items()
    }
    names = loop_charts.by_head([table for some in tables.values() for table in some])
    if not names:
        return
    st.subheader("By layer and head", help="Means over the probe sequences, and over seeds.")
    asked = session.address().heads
    with st.columns([1, 2])[0]:
        name = session.choice(
            "Diagnostic",
            "heads",
            names,
            asked if asked in names else names[0],
            format_func=loop_charts.diagnostic_title,
        )
    st.caption(loop_charts.diagnostic_help(name))
    for label, some in tables.items():
        if maps := loop_charts.head_maps(some, name):
            st.markdown(f"**{label}**")
            st.plotly_chart(
                loop_charts.heads_figure(maps, name),
                key=f"heads-{label}",
                config=session.image_config(f"{view.study.name}-{name}-by-head"),
                alt=f"{loop_charts.diagnostic_title(name)} of {label} by layer and head, one map per loop",
            )


def _chosen(view: StudyView, measured: Sequence[ConfigurationRecord]) -> list[ConfigurationRecord]:
    """The comparison's configurations, else the best one of every loop count."""
    known = {one.fingerprint: one for one in measured}
    picks = [pick for pick in session.address().picks if pick in known]
    if not picks:
        metric = view.study.objectives[0].metric
        direction = formats.direction(view.study, metric)
        best = frames.best_first(view.frame, metric, direction).groupby("num_loops").head(1).sort_values("num_loops")
        picks = [one for one in best["fingerprint"] if one in known] or list(known)
    shown = session.several(
        "Configurations", "picks", list(known), picks[:_MOST], format_func=view.labels.get, max_selections=_MOST
    )
    return comparison.chosen(measured, shown) or [known[picks[0]]]


if __name__ == "__main__":
    render()
