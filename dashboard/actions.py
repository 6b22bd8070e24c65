"""What a person may do to a study from a page: buttons that ask once more, carry it out, and say what came of it.

Every action goes through `orchestrator.control` or `orchestrator.submission`, refuses on a read-only server, and is
carried out once however often it is clicked. Long work never runs here: a driver is a process of its own.
"""

import time
from collections.abc import Callable

import streamlit as st

from dashboard import access
from dashboard.loading import reader
from orchestrator.control import Control, DriverOptions
from orchestrator.driver_launch import DriverLaunch
from orchestrator.errors import PltError
from orchestrator.home import Home
from orchestrator.records import StudyRecord
from orchestrator.requests import RequestKind

_SAID, _LAST = "said", "last-action"
_DOUBLE_CLICK_SECONDS = 2.0

Act = Callable[[Control, DriverOptions], str]
Options = Callable[[], DriverOptions]


def perform(study: StudyRecord, what: str, act: Act, options: Options) -> None:
    """Do it, unless this was clicked a moment ago, and remember what to say about it.

    What was typed just before the click is asked for now: the page may not have been drawn since.
    """
    key, now = (study.name, what), time.monotonic()
    last = st.session_state.get(_LAST)
    if last is not None and last[0] == key and now - last[1] < _DOUBLE_CLICK_SECONDS:
        return
    st.session_state[_LAST] = (key, now)
    try:
        access.require_writable()
        if any(request.kind.value == what for request in reader().pending(study.name)):
            st.session_state[_SAID] = (
                study.name,
                True,
                f"asked to {what} already; the driver answers at its next report",
            )
            return
        said = act(Control(Home.from_environment(), study), options())
    except PltError as error:
        st.session_state[_SAID] = (study.name, False, str(error))
        return
    st.session_state[_SAID] = (study.name, True, said)


def show_what_was_said(study: StudyRecord) -> None:
    """What the last action on this study came to."""
    said = st.session_state.get(_SAID)
    if said is None or said[0] != study.name:
        return
    _, well, text = said
    (st.success if well else st.error)(text, icon=":material/check:" if well else ":material/error:")


def control_bar(study: StudyRecord) -> None:
    """The buttons that fit how the study stands; nothing on a read-only server."""
    if access.read_only():
        st.caption("This dashboard is read-only.")
        return
    launch = DriverLaunch(Home.from_environment(), study.name)
    known = _remembered(launch)

    def options() -> DriverOptions:
        return known

    driven = study.driver is not None
    with st.container(horizontal=True, gap="small"):
        if driven:
            _ask_once_more(study, RequestKind.STOP, "Stop", "stop", _STOP, lambda control, _: control.stop(), options)
            if study.state.value == "PAUSED":
                _now(study, "resume", "Go on", "play_arrow", lambda control, how: control.resume(how), options)
            else:
                _ask_once_more(
                    study, RequestKind.PAUSE, "Pause", "pause", _PAUSE, lambda control, _: control.pause(), options
                )
        else:
            _start(study, "resume", "Resume", "play_arrow", lambda control, how: control.resume(how), known)
        if _untried(study):
            label = f"Retry {_untried(study)} failed"
            _start(study, "retry_failed", label, "replay", lambda control, how: control.retry_failed(how), known)
        _more(study, known)
        if st.button("Clone and edit", icon=":material/content_copy:", key=f"clone-{study.name}"):
            st.switch_page("views/submit.py", query_params={"from": study.name})


_STOP = "Running trials are given back with their checkpoints; what is finished stays. **Resume** continues it."
_PAUSE = "Running trials end at their next report and free their devices; the driver stays and waits."


def _ask_once_more(
    study: StudyRecord, kind: RequestKind, label: str, icon: str, why: str, act: Act, options: Options
) -> None:
    with st.popover(label, icon=f":material/{icon}:"):
        st.write(why)
        _now(study, kind.value, f"Yes, {label.lower()} it", icon, act, options)


def _now(study: StudyRecord, what: str, label: str, icon: str, act: Act, options: Options) -> None:
    st.button(
        label,
        icon=f":material/{icon}:",
        type="primary",
        key=f"do-{what}-{study.name}",
        on_click=perform,
        args=(study, what, act, options),
    )


def _start(study: StudyRecord, what: str, label: str, icon: str, act: Act, remembered: DriverOptions) -> None:
    """A driver may have to be started: ask how, then do it."""
    with st.popover(label, icon=f":material/{icon}:"):
        _now(study, what, f"Yes, {label.lower()}", icon, act, _choose(study, what, remembered))


def _more(study: StudyRecord, remembered: DriverOptions) -> None:
    with st.popover("More budget", icon=":material/add:"):
        key = f"budget-{study.name}"
        st.number_input(
            "Configurations over the study's whole life",
            min_value=study.budget + 1,
            value=study.budget + max(1, study.budget // 2),
            key=key,
        )
        options = _choose(study, "budget", remembered)

        def allow(control: Control, how: DriverOptions) -> str:
            return control.allow(st.session_state[key], how)

        _now(study, "budget", "Allow them", "add", allow, options)


def _choose(study: StudyRecord, what: str, remembered: DriverOptions) -> Options:
    """How a driver is to be started, once the button is clicked; a running one stays as it is."""
    if study.driver is not None:
        return lambda: remembered
    key = f"{what}-{study.name}"
    choose_options(key, remembered)

    def chosen() -> DriverOptions:
        backend = st.session_state[f"backend-{key}"] or remembered.backend
        return DriverOptions(backend=backend, address=st.session_state.get(f"address-{key}") or None)

    return chosen


def choose_options(key: str, remembered: DriverOptions | None = None) -> DriverOptions:
    """How a driver runs attempts, as `plt run` has it."""
    known = remembered or DriverOptions()
    backend = st.segmented_control(
        "Where attempts run",
        ["ray", "local"],
        default=known.backend,
        required=True,
        key=f"backend-{key}",
        help="ray: actors beside each other, here or on a cluster; local: one after another in the driver, repeatable "
        "bit for bit.",
    )
    address = None
    if backend == "ray":
        address = st.text_input(
            "Ray address", known.address or "", key=f"address-{key}", placeholder="empty: a cluster is started here"
        )
    return DriverOptions(backend=backend or "ray", address=address or None)


def _remembered(launch: DriverLaunch) -> DriverOptions:
    """How the study's driver was started last from here."""
    latest = launch.latest()
    values = {} if latest is None else dict(zip(latest.command, latest.command[1:], strict=False))
    return DriverOptions(backend=values.get("--backend", "ray"), address=values.get("--address"))


def _untried(study: StudyRecord) -> int:
    retried = {trial.retries for trial in study.trials}
    return sum(1 for trial in study.trials if trial.failure is not None and trial.number not in retried)
