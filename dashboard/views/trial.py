"""Page: one trial: its state and why, parameters, metrics, attempts, curve, environment and MLflow run."""

import streamlit as st

from dashboard import charts, formats, frames, session
from dashboard.loading import REFRESH, load_curve_metrics, load_curves, load_run_link, load_view
from orchestrator.attempt_output import output_tail
from orchestrator.errors import ServiceError
from orchestrator.export import exported
from orchestrator.formats import duration, with_unit
from orchestrator.home import Home
from orchestrator.left_behind import left_behind
from orchestrator.records import StudyRecord, TrialRecord, TrialState

_LOG_LINES, _MOST_ROWS = 200, 1_000


@st.fragment(run_every=REFRESH)
def render() -> None:
    """Draw the page, again every few seconds."""
    study = session.choose_study()
    if study is None:
        return
    if not study.trials:
        st.info(f"This study has no trials yet. Its budget is {study.budget} configurations.")
        return
    trial = _choose(study)
    _head(study, trial)
    left, right = st.columns([3, 2], gap="large")
    with left:
        _failure(trial)
        _curve(study, trial)
        _attempts(trial)
        _log(study, trial)
    with right:
        _tables(trial)
        _files(study, trial)
        _run(study, trial)
    with st.expander(f"All {len(study.trials)} trials"):
        view = load_view(study.name)
        shown = view.derived("trials", lambda: frames.trials_frame(study))
        st.dataframe(shown.tail(_MOST_ROWS), hide_index=True, alt="Every trial of the study")
        if len(shown) > _MOST_ROWS:
            st.caption(f"The last {_MOST_ROWS:,} of {len(shown):,}; the download has all.")
        st.download_button(
            "CSV, as `plt export` writes it",
            lambda: exported(study, "csv"),
            file_name=f"{study.name}-trials.csv",
            mime="text/csv",
            icon=":material/download:",
            on_click="ignore",
        )


def _choose(study: StudyRecord) -> TrialRecord:
    """The address' trial, else one that failed in a study without results, else the last."""
    trials = {trial.number: trial for trial in study.trials}
    asked = session.address().trial
    failed = [trial.number for trial in study.trials if trial.failure is not None]
    complete = any(trial.state is TrialState.COMPLETE for trial in study.trials)
    value = asked if asked in trials else failed[0] if failed and not complete else max(trials)
    if asked is not None and asked not in trials:
        st.warning(f"Study {study.name} has no trial {asked}; showing trial {value}.")
    with st.columns([2, 3])[0]:
        number = session.choice(
            "Trial", "trial", sorted(trials), value, format_func=lambda one: _trial_label(trials[one])
        )
    return trials[number]


def _trial_label(trial: TrialRecord) -> str:
    return f"{trial.number}: {formats.configuration_label(trial.params)} · seed {trial.seed} · {trial.state.value}"


def _head(study: StudyRecord, trial: TrialRecord) -> None:
    note = "" if trial.feasible else f"infeasible: {', '.join(_broken(trial))}"
    if trial.stopped_at is not None:
        note = f"stopped by the pruner at {trial.stopped_at:,} tokens"
    session.badge(trial.state.value, note)
    cards = [(formats.title(one.metric), _value(one.metric, trial), one.metric) for one in study.objectives]
    columns = st.columns(len(cards) + 1)
    for column, (label, value, metric) in zip(columns, cards, strict=False):
        column.metric(label, value, border=True, help=formats.help_text(metric))
    columns[-1].metric("Took", _took(trial), border=True, help=f"From {formats.moment(trial.started)}")


def _broken(trial: TrialRecord) -> list[str]:
    return [text for text, amount in trial.violations.items() if amount > 0]


def _value(metric: str, trial: TrialRecord) -> str:
    return with_unit(metric, trial.metrics[metric]) if metric in trial.metrics else "-"


def _took(trial: TrialRecord) -> str:
    if trial.started is None:
        return "not started"
    if trial.ended is not None:
        return duration((trial.ended - trial.started).total_seconds())
    return "still running" if trial.state is TrialState.RUNNING else "interrupted"


def _failure(trial: TrialRecord) -> None:
    if trial.failure is None:
        return
    st.error(f"**{trial.failure.get('reason', 'failed')}**: {trial.failure.get('message', '')}")
    if traceback := trial.failure.get("traceback"):
        with st.expander("Traceback"):
            st.code(traceback, language="python")


def _curve(study: StudyRecord, trial: TrialRecord) -> None:
    st.subheader("Learning curve")
    try:
        metrics = load_curve_metrics(study.name, [trial.number])
        if not metrics:
            st.caption("No curve: MLflow has no report of this trial (yet).")
            return
        metric, by, smooth = session.choose_curve(study, metrics)
        curves = load_curves(study.name, [trial.number], metric)
    except ServiceError as error:
        session.tracking_notice(error)
        return
    figure = charts.curves_figure({f"trial {trial.number}": list(curves.values())}, metric, by, smooth)
    st.plotly_chart(figure, key="curve", alt=f"{formats.title(metric)} of trial {trial.number} in training")


def _attempts(trial: TrialRecord) -> None:
    st.subheader("Attempts", help="One execution of a trial; a retry is the next attempt.")
    if not trial.attempts:
        st.caption("Never executed: what is known of it was known beforehand." if trial.state.finished else "None yet.")
        return
    st.dataframe(frames.attempts_frame(trial), hide_index=True, alt="Attempts of the trial")
    for attempt in trial.attempts:
        if attempt.failure and attempt.failure.get("traceback") and attempt.failure != trial.failure:
            with st.expander(f"Traceback of attempt {attempt.number}"):
                st.code(attempt.failure["traceback"], language="python")


def _log(study: StudyRecord, trial: TrialRecord) -> None:
    """The end of what the latest attempt printed."""
    st.subheader("Output of the last attempt", help=f"All of it: `plt logs {study.name}/{trial.number}`.")
    if not trial.attempts:
        st.caption("No attempt, no output.")
        return
    lines = output_tail(Home.from_environment(), study.name, trial.number, trial.attempts[-1].number, _LOG_LINES)
    if lines is None:
        st.caption("It has no output here, if it printed any.")
    else:
        st.code("\n".join(lines) or "nothing", language=None, height=300 if len(lines) > 12 else "content")


def _files(study: StudyRecord, trial: TrialRecord) -> None:
    st.subheader("Files", help="What the attempts left behind, below the home folder.")
    frame = frames.files_frame(left_behind(Home.from_environment(), study.name, trial.number))
    if frame.empty:
        st.caption("Nothing on this machine.")
        return
    st.dataframe(frame, hide_index=True, alt="Files of the trial with their sizes")
    models = [name for name in frame["file"] if name.endswith("checkpoint/model.safetensors")]
    if models:
        folder = models[-1].removesuffix("/model.safetensors")
        st.code(f'model = load_pretrained("{folder}")', language="python", wrap_lines=True)


def _tables(trial: TrialRecord) -> None:
    st.subheader("Metrics")
    if trial.metrics:
        metrics = {formats.title(metric): _value(metric, trial) for metric in sorted(trial.metrics)}
        st.dataframe(frames.facts_frame(metrics), hide_index=True, alt="Final metrics")
    else:
        st.caption("No final metrics." if trial.state.finished else "No final metrics yet.")
    st.subheader("Parameters")
    searched = frames.facts_frame({**trial.params, "seed": trial.seed})
    st.dataframe(searched, hide_index=True, alt="Searched parameters and seed")
    with st.expander("The whole configuration"):
        st.caption(f"Fingerprint `{trial.configuration}`, shared by its seeds.")
        st.dataframe(frames.facts_frame(trial.knobs), hide_index=True, alt="Every knob")
    if trial.attempts and trial.attempts[-1].info:
        with st.expander("Environment of the last attempt"):
            st.dataframe(frames.facts_frame(trial.attempts[-1].info), hide_index=True, alt="Hardware and versions")


def _run(study: StudyRecord, trial: TrialRecord) -> None:
    st.subheader("MLflow run")
    try:
        link = load_run_link(study.name, trial.number)
    except ServiceError as error:
        st.caption(str(error))
        return
    if link is None:
        st.caption("Not tracked yet.")
    elif link.url is not None:
        st.link_button("Open in MLflow", link.url, icon=":material/open_in_new:")
    else:
        st.code(link.run_id, language=None)
        st.caption("To open it in MLflow's own pages:")
        st.code(f"mlflow ui --backend-store-uri {link.uri}", language="bash", wrap_lines=True)


if __name__ == "__main__":
    render()
