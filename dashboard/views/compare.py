"""Page: chosen configurations beside each other: what differs, metrics with differences, costs, curves, Markdown."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from dashboard import advice, charts, comparison, formats, loop_charts, session
from dashboard.loading import REFRESH, load_curve_metrics, load_curves, load_view
from dashboard.study_view import StudyView
from orchestrator.configurations import ConfigurationRecord
from orchestrator.errors import ServiceError
from orchestrator.records import StudyRecord

_MOST_VERDICTS, _MOST_COLUMNS, _MOST_CURVES, _MOST_LINKS = 6, 8, 12, 24
_COSTS = ("decode/ms_per_token", "kv/bytes_per_sequence")


@st.fragment(run_every=REFRESH)
def render() -> None:
    """Draw the page, again every few seconds."""
    study = session.choose_study()
    if study is None:
        return
    view = load_view(study.name)
    chosen = _choose(view)
    if not chosen:
        st.info("Choose configurations above, or click points on the Trade-offs page.")
        st.page_link("views/trade_offs.py", label="Open the trade-offs", icon=":material/scatter_plot:")
        return
    baseline = _choose_baseline(chosen)
    _verdicts(study, chosen, baseline)
    _knobs(chosen)
    _metrics(study, chosen, baseline)
    _bars(view, chosen)
    _curves(study, chosen)
    _loops(study, chosen)
    _runs(chosen)
    with st.expander("Copy as Markdown", icon=":material/content_copy:"):
        st.code(comparison.to_markdown(study.name, chosen, baseline), language="markdown")


def _choose(view: StudyView) -> list[ConfigurationRecord]:
    known = [pick for pick in session.address().picks if pick in view.labels]
    picks = session.several(
        "Comparison", "picks", view.choices(known), known, format_func=view.labels.get, placeholder="nothing chosen"
    )
    return comparison.chosen(view.configurations, picks)


def _choose_baseline(chosen: Sequence[ConfigurationRecord]) -> ConfigurationRecord:
    names = dict(zip((one.fingerprint for one in chosen), comparison.labels(chosen), strict=True))
    asked = session.address().baseline
    value = asked if asked in names else chosen[0].fingerprint
    with st.columns([2, 3])[0]:
        session.choice(
            "Baseline", "baseline", list(names), value, format_func=names.get, help=formats.TERMS["baseline"]
        )
    return next(one for one in chosen if one.fingerprint == value)


def _verdicts(study: StudyRecord, chosen: Sequence[ConfigurationRecord], baseline: ConfigurationRecord) -> None:
    """Whether each of a few beats the baseline for sure, objective by objective."""
    if not 1 < len(chosen) <= _MOST_VERDICTS:
        return
    metrics = [objective.metric for objective in study.objectives]
    directions = {metric: formats.direction(study, metric) for metric in metrics}
    lines = advice.verdicts(chosen, baseline, metrics, directions)
    if lines:
        st.subheader("Is the difference real?", help=formats.TERMS["interval"])
        st.markdown("\n".join(f"- {line}" for line in lines))


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


def _metrics(study: StudyRecord, chosen: Sequence[ConfigurationRecord], baseline: ConfigurationRecord) -> None:
    st.subheader("Metrics", help=formats.TERMS["interval"])
    frame = comparison.metrics_frame(chosen, baseline)
    if frame.empty:
        st.info("None of these configurations has a result yet.")
        return
    frame["metric"] = frame["metric"].map(formats.title)
    shown = frame if len(chosen) <= _MOST_COLUMNS else frame.set_index("metric").T.reset_index(names="configuration")
    st.dataframe(shown, hide_index=True, alt="Metrics of each configuration and differences from the baseline")
    if len(chosen) > 1:
        st.caption(
            "Δ is the difference from the baseline; ~ marks one whose 95 % interval holds zero: it may be chance."
        )
    st.download_button(
        "CSV",
        lambda: frame.to_csv(index=False),
        file_name=f"{study.name}-comparison.csv",
        mime="text/csv",
        icon=":material/download:",
        on_click="ignore",
    )


def _bars(view: StudyView, chosen: Sequence[ConfigurationRecord]) -> None:
    frame = view.frame.set_index("fingerprint", drop=False)
    rows: pd.DataFrame = frame.loc[[one.fingerprint for one in chosen]]
    metrics = [metric for metric in _COSTS if metric in rows and rows[metric].notna().any()]
    if not metrics:
        return
    st.subheader("Costs")
    for column, metric in zip(st.columns(len(metrics)), metrics, strict=True):
        column.plotly_chart(
            charts.bars_figure(comparison.labels(chosen), rows, metric),
            key=f"bars-{metric}",
            config=session.image_config(f"{view.study.name}-{metric.replace('/', '-')}"),
            alt=f"{formats.title(metric)} of each configuration",
        )


def _curves(study: StudyRecord, chosen: Sequence[ConfigurationRecord]) -> None:
    st.subheader("Learning curves")
    drawn = chosen[:_MOST_CURVES]
    numbers = [trial.number for one in drawn for trial in one.trials]
    try:
        metrics = load_curve_metrics(study.name, numbers)
        if not metrics:
            st.caption("No curves yet: nothing of these trials was tracked.")
            return
        metric, by, smooth = session.choose_curve(study, metrics)
        curves = load_curves(study.name, numbers, metric)
    except ServiceError as error:
        session.tracking_notice(error)
        return
    by_label = {
        label: [curves[trial.number] for trial in one.trials if trial.number in curves]
        for label, one in zip(comparison.labels(drawn), drawn, strict=True)
    }
    st.plotly_chart(
        charts.curves_figure(by_label, metric, by, smooth),
        key="curves",
        config=session.image_config(f"{study.name}-curves"),
        alt=f"{formats.title(metric)} in training",
    )
    st.caption("One line per seed; a gap is a value that was not finite.")
    if len(chosen) > len(drawn):
        st.caption(f"Curves of the first {len(drawn)} configurations; more could not be told apart.")


def _loops(study: StudyRecord, chosen: Sequence[ConfigurationRecord]) -> None:
    """Loop diagnostics side by side, where there are any."""
    drawn = chosen[:_MOST_CURVES]
    names = loop_charts.diagnostics(drawn)
    if not names:
        return
    st.subheader("Loop diagnostics")
    labelled = dict(zip(comparison.labels(drawn), drawn, strict=True))
    for column, name in zip(st.columns(3), names[:3], strict=False):
        column.plotly_chart(
            loop_charts.diagnostic_figure(labelled, name),
            key=f"loops-{name}",
            config=session.image_config(f"{study.name}-{name}"),
            alt=f"{loop_charts.diagnostic_title(name)} by loop",
        )
    st.page_link("views/loops.py", label="All diagnostics", icon=":material/autorenew:")


def _runs(chosen: Sequence[ConfigurationRecord]) -> None:
    """The way to each trial's own page, which links its MLflow run."""
    trials = [trial for one in chosen[:_MOST_CURVES] for trial in one.trials]
    st.markdown("**Trials and their MLflow runs**")
    with st.container(horizontal=True):
        for trial in trials[:_MOST_LINKS]:
            if st.button(f"Trial {trial.number}", key=f"to-trial-{trial.number}", icon=":material/labs:"):
                session.open_page("trial", trial=trial.number)


if __name__ == "__main__":
    render()
