"""Page: accuracy against latency and against KV memory, one point per configuration, with intervals and the front.

Points that are clicked or boxed are added to the comparison, and budgets are drawn as lines; both live in the address
and so survive every refresh.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import formats, frames, session
from dashboard.advice import advise
from dashboard.bound_widgets import bound
from dashboard.growth_chart import growth_figure
from dashboard.loading import REFRESH, load_view
from dashboard.study_view import StudyView
from dashboard.trade_off_chart import picked, trade_off_figure
from orchestrator.constraints import parse_constraint
from orchestrator.export import exported
from orchestrator.latency_devices import mixed_devices
from orchestrator.records import StudyRecord

_USUAL_COSTS = ("decode/ms_per_token", "kv/bytes_per_sequence")
_MOST_ROWS = 1_000  # of the table, that are sent to the browser


@st.fragment(run_every=REFRESH)
def render() -> None:
    """Draw the page, again every few seconds."""
    study = session.choose_study()
    if study is None:
        return
    view = load_view(study.name)
    if not view.metrics:
        _no_points(study)
        return
    if (mixed := mixed_devices(study)) is not None:
        st.warning(f"Careful: {mixed}.", icon=":material/warning:")
    y, costs = _choose_metrics(study, view.metrics)
    sides = list(zip(st.columns(2, gap="large"), ("left", "right"), costs, strict=True))
    for column, _, x in sides:
        with column:
            _budget(view, x)
    frame = frames.within(view.frame, session.address().budgets)
    _advice(view, frame, y, costs)
    for column, side, x in sides:
        with column:
            _chart(view, frame, x, y, side)
    _explain(frame, study)
    _comparison_bar(view)
    _table(view, frame)
    _growth(view)


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
    chosen = []
    for column, label, field, value in zip(
        columns,
        ("Accuracy axis", "Left cost axis", "Right cost axis"),
        ("y", "left", "right"),
        (y, left, right),
        strict=True,
    ):
        with column:
            how = {"format_func": formats.title, "help": formats.help_text(value)}
            chosen.append(session.choice(label, field, metrics, value, **how))
    return chosen[0], (chosen[1], chosen[2])


def _first(known: Sequence[str], *wished: str | None) -> str:
    return next(metric for metric in wished if metric is not None and metric in known)


def _budget(view: StudyView, metric: str) -> None:
    """A slider and a number for the most that a reader would spend, both bound to the address."""
    values = view.frame[metric].dropna()
    if formats.direction(view.study, metric) == "maximize" or values.nunique() < 2:
        return
    axis = formats.axis(metric, values)
    step = formats.nice_step((values.max() - values.min()) / axis.scale)
    low = float(values.min() / axis.scale // step * step)
    high = float((values.max() / axis.scale // step + 1) * step)
    most = session.address().budgets.get(metric)
    shown = high if most is None else min(high, max(low, most / axis.scale))

    def write(value: float | None) -> None:
        limit = None if value is None else value * axis.scale
        session.turn_to(session.address().with_budget(metric, limit))

    left, right = st.columns([3, 2], vertical_alignment="bottom")
    typed = None if most is None else most / axis.scale
    left.slider(
        f"Spend at most · {axis.title}",
        low,
        high,
        shown,
        step=step,
        **bound(f"slide-{metric}", shown, lambda value: write(None if value >= high else value)),
        help="Moves the dashed line; what lies beyond it is faint and never called best.",
    )
    right.number_input(
        "At most",
        value=typed,
        placeholder="no limit",
        **bound(f"number-{metric}", typed, write),
        min_value=0.0,
        step=step,
        format=None,
    )


def _advice(view: StudyView, frame: pd.DataFrame, y: str, costs: Sequence[str]) -> None:
    budgets = session.address().budgets
    direction = formats.direction(view.study, y)
    known = {one.fingerprint: one for one in view.configurations}
    found = advise(frame, known, y, list(dict.fromkeys(costs)), direction)
    if found is not None:
        st.success(f"{'Within these budgets' if budgets else 'Best feasible'}: {found.text}", icon=":material/check:")
    elif budgets:
        st.warning("Nothing feasible lies within these budgets; move a line.", icon=":material/block:")


def _chart(view: StudyView, frame: pd.DataFrame, x: str, y: str, side: str) -> None:
    here = session.address()
    figure = view.derived(
        ("trade-off", x, y, here.picks, tuple(here.budgets.items())),
        lambda: trade_off_figure(
            frame,
            x,
            y,
            directions={metric: formats.direction(view.study, metric) for metric in (x, y)},
            constraints=[parse_constraint(text) for text in view.study.constraints],
            budgets=here.budgets,
            picks=here.picks,
        ),
    )
    st.plotly_chart(
        figure,
        key=f"chart-{side}",
        on_select=lambda: _pick(view, f"chart-{side}"),
        selection_mode=("points", "box", "lasso"),
        config=session.image_config(f"{view.study.name}-{side}"),
        alt=f"{formats.title(y)} against {formats.title(x)}, one point per configuration; the table below has the same",
    )


def _pick(view: StudyView, key: str) -> None:
    """Add what was clicked or boxed to the comparison; an empty selection changes nothing."""
    if fingerprints := picked(st.session_state[key], view.owners):
        session.turn_to(session.address().toggled(fingerprints))


def _explain(frame: pd.DataFrame, study: StudyRecord) -> None:
    counts = ", ".join(f"{count} {standing}" for standing, count in frame["standing"].value_counts().items())
    total = f"{len(frame)} configuration{'s' * (len(frame) != 1)}"
    note = "Click a point to add it to the comparison or take it out, or draw a box around several."
    bars = "Bars are 95 % intervals over seeds; larger markers have wider windows; faded points are dominated."
    st.caption(f"{total}: {counts}. {bars} {note}", help=formats.TERMS["front"])
    if study.constraints and not (frame["standing"].isin(["front", "dominated", "outside"])).any():
        st.warning(f"No feasible configuration yet: none meets {' and '.join(study.constraints)}.")


def _comparison_bar(view: StudyView) -> None:
    picks = [pick for pick in session.address().picks if pick in view.labels]
    left, right = st.columns([7, 1], vertical_alignment="bottom")
    with left:
        session.several(
            "Comparison",
            "picks",
            view.choices(picks),
            picks,
            format_func=view.labels.get,
            placeholder="nothing chosen",
        )
    if right.button("Compare", disabled=not picks, type="primary", width="stretch"):
        st.switch_page("views/compare.py", query_params=session.address().to_params())


def _table(view: StudyView, frame: pd.DataFrame) -> None:
    budgets = tuple(session.address().budgets.items())
    tabled = [metric for metric in view.metrics if not metric.startswith("loops/")]  # the Loops page has those
    shown, config = view.derived(
        ("table", budgets), lambda: frames.display(frame, view.study.search, tabled, most=_MOST_ROWS)
    )
    st.dataframe(
        shown,
        hide_index=True,
        column_config=session.written_columns(config),
        alt="Every configuration with its metrics and intervals",
    )
    if len(frame) > _MOST_ROWS:
        st.caption(f"The first {_MOST_ROWS:,} of {len(frame):,}, the front first; the downloads have all.")
    study = view.study
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _download("Configurations, CSV", lambda: frame.to_csv(index=False), f"{study.name}-configurations.csv")
        _download("Configurations, Parquet", lambda: frames.parquet(frame), f"{study.name}-configurations.parquet")
        _download("Trials, CSV", lambda: exported(study, "csv"), f"{study.name}-trials.csv")
        _download("Trials, Parquet", lambda: exported(study, "parquet"), f"{study.name}-trials.parquet")
        session.choose_image_format()


def _download(label: str, data: Any, name: str) -> None:
    """A button that makes its file only when it is clicked, and leaves the page as it is."""
    st.download_button(label, data, file_name=name, key=name, icon=":material/download:", on_click="ignore")


def _growth(view: StudyView) -> None:
    st.subheader("Hypervolume", help=formats.TERMS["hypervolume"])
    if not view.hypervolume:
        st.caption("No feasible trial is complete yet.")
        return
    st.plotly_chart(
        view.derived("growth", lambda: growth_figure(view.hypervolume)),
        key="growth",
        config=session.image_config(f"{view.study.name}-hypervolume"),
        alt="How much of the objective space the front covers, by finished trials",
    )


if __name__ == "__main__":
    render()
