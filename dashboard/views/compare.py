"""Page: chosen configurations beside each other: what differs, metrics with differences, costs, curves, Markdown."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from dashboard import charts, comparison, formats, frames, session
from dashboard.loading import REFRESH, load_curve_metrics, load_curves
from orchestrator.configurations import ConfigurationRecord, group
from orchestrator.errors import ServiceError
from orchestrator.records import StudyRecord

_COSTS = ("decode/ms_per_token", "kv/bytes_per_sequence")


@st.fragment(run_every=REFRESH)
def render() -> None:
    """Draw the page, again every few seconds."""
    study = session.choose_study()
    if study is None:
        return
    configurations = group(study)
    chosen = _choose(configurations)
    if not chosen:
        st.info("Choose configurations above, or click points on the Trade-offs page.")
        st.page_link("views/trade_offs.py", label="Open the trade-offs", icon=":material/scatter_plot:")
        return
    baseline = _choose_baseline(chosen)
    _knobs(chosen)
    _metrics(chosen, baseline)
    _bars(study, configurations, chosen)
    _curves(study, chosen)
    with st.expander("Copy as Markdown", icon=":material/content_copy:"):
        st.code(comparison.to_markdown(study.name, chosen, baseline), language="markdown")


def _choose(configurations: Sequence[ConfigurationRecord]) -> list[ConfigurationRecord]:
    names = dict(zip((one.fingerprint for one in configurations), comparison.labels(configurations), strict=True))
    known = [pick for pick in session.address().picks if pick in names]
    picks = session.several(
        "Comparison", "picks", list(names), known, format_func=names.get, placeholder="nothing chosen"
    )
    return comparison.chosen(configurations, picks)


def _choose_baseline(chosen: Sequence[ConfigurationRecord]) -> ConfigurationRecord:
    names = dict(zip((one.fingerprint for one in chosen), comparison.labels(chosen), strict=True))
    asked = session.address().baseline
    value = asked if asked in names else chosen[0].fingerprint
    text = "Differences are counted from this one, seed by seed where both have the seed."
    with st.columns([2, 3])[0]:
        session.choice("Baseline", "baseline", list(names), value, format_func=names.get, help=text)
    return next(one for one in chosen if one.fingerprint == value)


def _knobs(chosen: Sequence[ConfigurationRecord]) -> None:
    st.subheader("Parameters")
    knobs = comparison.knobs_frame(chosen)
    differing, same = (knobs[knobs["differs"] == flag].drop(columns="differs") for flag in (True, False))
    if len(differing):
        st.dataframe(differing, hide_index=True, alt="Parameters in which the configurations differ")
    elif len(chosen) > 1:
        st.caption("These configurations do not differ.")
    with st.expander(f"{len(same)} parameters that are the same"):
        st.dataframe(same, hide_index=True, alt="Parameters that all configurations share")


def _metrics(chosen: Sequence[ConfigurationRecord], baseline: ConfigurationRecord) -> None:
    st.subheader("Metrics", help=formats.TERMS["interval"])
    frame = comparison.metrics_frame(chosen, baseline)
    if frame.empty:
        st.info("None of these configurations has a result yet.")
        return
    frame["metric"] = frame["metric"].map(formats.title)
    st.dataframe(frame, hide_index=True, alt="Metrics of each configuration and differences from the baseline")
    if len(chosen) > 1:
        st.caption(
            "Δ is the difference from the baseline; ~ marks one whose 95 % interval holds zero: it may be chance."
        )


def _bars(
    study: StudyRecord, configurations: Sequence[ConfigurationRecord], chosen: Sequence[ConfigurationRecord]
) -> None:
    frame = frames.configurations_frame(study, configurations).set_index("fingerprint", drop=False)
    rows: pd.DataFrame = frame.loc[[one.fingerprint for one in chosen]]
    metrics = [metric for metric in _COSTS if metric in rows and rows[metric].notna().any()]
    if not metrics:
        return
    st.subheader("Costs")
    for column, metric in zip(st.columns(len(metrics)), metrics, strict=True):
        column.plotly_chart(
            charts.bars_figure(comparison.labels(chosen), rows, metric),
            key=f"bars-{metric}",
            alt=f"{formats.title(metric)} of each configuration",
        )


def _curves(study: StudyRecord, chosen: Sequence[ConfigurationRecord]) -> None:
    st.subheader("Learning curves")
    numbers = [trial.number for one in chosen for trial in one.trials]
    try:
        metrics = load_curve_metrics(study.name, numbers)
        if not metrics:
            st.caption("No curves yet: nothing of these trials was tracked.")
            return
        metric, by = session.choose_curve(study, metrics)
        curves = load_curves(study.name, numbers, metric)
    except ServiceError as error:
        session.tracking_notice(error)
        return
    by_label = {
        label: [curves[trial.number] for trial in one.trials if trial.number in curves]
        for label, one in zip(comparison.labels(chosen), chosen, strict=True)
    }
    st.plotly_chart(
        charts.curves_figure(by_label, metric, by), key="curves", alt=f"{formats.title(metric)} in training"
    )
    st.caption("One line per seed; a gap is a value that was not finite.")


if __name__ == "__main__":
    render()
