"""Page: what the search learned: which parameters matter, how metrics move with them, and what pruning saved."""

import streamlit as st

from dashboard import formats, search_charts, session
from dashboard.loading import REFRESH, load_view
from dashboard.study_view import StudyView
from orchestrator.formats import number
from orchestrator.importance import Importance, importances


@st.fragment(run_every=REFRESH)
def render() -> None:
    """Draw the page, again every few seconds."""
    study = session.choose_study()
    if study is None:
        return
    view = load_view(study.name)
    _savings(view)
    if not view.metrics:
        st.info("No configuration has a result yet; the search is explained as trials complete.")
        return
    if not study.search:
        st.info("This study searches nothing: its one configuration is fixed.")
        return
    value = next(metric for metric in (session.address().metric, view.metrics[0]) if metric in view.metrics)
    with st.columns([2, 3])[0]:
        metric = session.choice("Metric", "metric", view.metrics, value, format_func=formats.title)
    left, right = st.columns([2, 3], gap="large")
    with left:
        _importance(view, metric)
    with right:
        _parallel(view, metric)
    _slices(view, metric)
    _map(view, metric)


def _savings(view: StudyView) -> None:
    saved = view.savings
    with st.container(horizontal=True, gap="small"):
        st.metric("Trained", _tokens(saved.trained), border=True, help="By all trials that did not fail.")
        st.metric(
            f"Saved by pruning ({saved.stopped_trials} trials)",
            _tokens(saved.stopped),
            border=True,
            help=formats.TERMS["pruned"],
        )
        st.metric(
            f"Saved by constraints ({saved.infeasible_trials} trials)",
            _tokens(saved.infeasible),
            border=True,
            help="What is known before training already broke a constraint.",
        )
        st.metric("Saved in all", f"{100 * saved.share:.0f} %", border=True, help="Of what everything would have cost.")


def _tokens(count: int) -> str:
    return f"{number('train/tokens', count)} tokens"


def _importance(view: StudyView, metric: str) -> None:
    st.subheader("Importance", help=formats.TERMS["importance"])
    maximize = formats.direction(view.study, metric) == "maximize"
    found: list[Importance] = view.derived(
        ("importance", metric), lambda: importances(view.study, metric, larger_is_better=maximize)
    )
    if not found:
        st.caption("At least four complete trials are needed.")
        return
    st.plotly_chart(
        search_charts.importance_figure(found),
        key="importance",
        config=session.image_config(f"{view.study.name}-importance"),
        alt=f"How much each parameter matters for {formats.title(metric)}",
    )


def _parallel(view: StudyView, metric: str) -> None:
    st.subheader("Parallel coordinates", help="Drag along an axis to keep only the lines that pass there.")
    others = [one.metric for one in view.study.objectives if one.metric in view.metrics and one.metric != metric]
    st.plotly_chart(
        view.derived(
            ("parallel", metric),
            lambda: search_charts.parallel_figure(view.frame, view.study.search, [metric, *others]),
        ),
        key="parallel",
        config=session.image_config(f"{view.study.name}-parallel"),
        alt="One line per configuration through its parameters and objectives",
    )


def _slices(view: StudyView, metric: str) -> None:
    st.subheader("Slices", help="Every complete configuration by one parameter; hollow points are infeasible.")
    names = [name for name in view.study.search if name in view.frame]
    for start in range(0, len(names), 3):
        for column, name in zip(st.columns(3), names[start : start + 3], strict=False):
            with column:
                st.plotly_chart(
                    _slice(view, name, metric),
                    key=f"slice-{name}",
                    config=session.image_config(f"{view.study.name}-{name}"),
                    alt=f"{formats.title(metric)} by {name}",
                )


def _slice(view: StudyView, name: str, metric: str) -> object:
    return view.derived(("slice", name, metric), lambda: search_charts.slice_figure(view.frame, name, metric))


def _map(view: StudyView, metric: str) -> None:
    names = [name for name in view.study.search if name in view.frame]
    if len(names) < 2:
        return
    st.subheader("Two parameters", help="The best feasible mean at every pair of values; ranges are cut in ten.")
    here = session.address()
    left, right, _ = st.columns([1, 1, 2])
    with left:
        first = session.choice("Across", "first", names, here.first if here.first in names else names[0])
    rest = [name for name in names if name != first]
    with right:
        second = session.choice("Up", "second", rest, here.second if here.second in rest else rest[0])
    figure = view.derived(
        ("map", first, second, metric),
        lambda: search_charts.map_figure(view.frame, first, second, metric, formats.direction(view.study, metric)),
    )
    if figure is None:
        st.caption("No feasible configuration has both.")
        return
    st.plotly_chart(
        figure,
        key="map",
        config=session.image_config(f"{view.study.name}-{first}-{second}"),
        alt=f"Best {formats.title(metric)} by {first} and {second}",
    )


if __name__ == "__main__":
    render()
