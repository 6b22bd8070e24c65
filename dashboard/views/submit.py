"""Page: a new study from a form or as YAML, checked while it is written, told what it will cost, and submitted once."""

from dataclasses import dataclass

import streamlit as st

from dashboard import access, actions, session, spec_form, starting_points
from dashboard.address import Address
from dashboard.bound_widgets import bound
from dashboard.loading import load_study, reader
from dashboard.preview_text import preview_markdown
from orchestrator.control import DriverOptions
from orchestrator.errors import PltError, SpecError
from orchestrator.home import Home
from orchestrator.preview import Preview, preview
from orchestrator.records import StudyRecord
from orchestrator.spec import StudySpec, load_spec
from orchestrator.submission import submit

_EARLIER = 8  # studies whose trials tell how fast this machine is


@dataclass(frozen=True)
class _Checked:
    """What a text is worth."""

    spec: StudySpec | None
    problems: tuple[str, ...]


@st.fragment
def render() -> None:
    """Draw the page; nothing here refreshes by itself, so that nobody's typing is disturbed.

    A fragment, though it is the whole page: what is typed while a fragment runs waits until it is done, whereas the run
    of a page is broken off, even while it writes down what was typed before.
    """
    if access.read_only():
        st.error("This dashboard is read-only: studies are submitted elsewhere.")
        return
    _start_from()
    checked = _check(st.session_state[spec_form.TEXT])
    left, right = st.columns([5, 2], gap="large")
    with left:
        _edit()
    with right:
        _tell(checked)


def _start_from() -> None:
    """Choose what to begin with; the address may name a study to clone."""
    names = session.study_names()
    options = {f"example: {name}": ("example", name) for name in starting_points.examples()}
    options |= {f"study: {name}": ("study", name) for name in names}
    asked = st.query_params.get("from")
    wanted = f"study: {asked}" if asked in names else next(iter(options), None)
    if st.session_state.get("started-from-address") != asked or spec_form.TEXT not in st.session_state:
        st.session_state["started-from-address"] = asked
        st.session_state["start-from"] = wanted
        _load(options.get(wanted or ""), names)
    with st.columns([2, 3])[0]:
        st.selectbox(
            "Start from",
            list(options),
            key="start-from",
            on_change=lambda: _load(options.get(st.session_state["start-from"] or ""), names),
            help="An example, or a study of this home to clone and edit.",
        )


def _load(chosen: tuple[str, str] | None, names: list[str]) -> None:
    kind, name = chosen or ("example", "")
    try:
        text = (
            starting_points.clone_text(Home.from_environment(), name, names)
            if kind == "study"
            else starting_points.example_text(name)
        )
    except PltError as error:
        st.toast(str(error), icon=":material/error:")
        return
    st.session_state[spec_form.TEXT] = text
    plain = spec_form.said(text)
    if plain is not None and kind == "example" and str(plain.get("name")) in names:
        spec_form.put(("name",), starting_points.free_name(str(plain["name"]), names))


def _edit() -> None:
    how = st.segmented_control("Edit as", ["Form", "YAML"], default="Form", required=True, key="edit-as")
    if how == "YAML":
        text = st.session_state[spec_form.TEXT]
        st.text_area(
            "Study file",
            text,
            height=620,
            **bound("yaml", text, lambda typed: st.session_state.update({spec_form.TEXT: typed})),
            help="Checked whenever you leave the field or press Ctrl+Enter.",
        )
        return
    plain = spec_form.said(st.session_state[spec_form.TEXT])
    if plain is None:
        st.warning("The text cannot be read as YAML; mend it there first.")
        return
    spec_form.draw(plain)


@st.cache_resource(max_entries=32, show_spinner=False)
def _check(text: str) -> _Checked:
    try:
        return _Checked(load_spec(spec_form.FILE, text=text), ())
    except SpecError as error:
        return _Checked(None, tuple(str(error).splitlines()))


@st.cache_data(ttl=60, max_entries=32, show_spinner="Looking at the search space ...")
def _preview(home: Home, text: str) -> Preview:
    del home  # whose studies they are
    return preview(load_spec(spec_form.FILE, text=text), _earlier())


def _earlier() -> list[StudyRecord]:
    """The studies of this home whose journals changed last."""
    records = []
    for name in reader().latest_names()[:_EARLIER]:
        try:
            records.append(load_study(name))
        except PltError:  # its own page says what is wrong with it
            continue
    return records


def _tell(checked: _Checked) -> None:
    """Right of the editor: what is wrong, or what will happen; and the button."""
    text, spec = st.session_state[spec_form.TEXT], checked.spec
    if spec is None:
        st.error(f"{len(checked.problems)} to mend", icon=":material/error:")
        for problem in checked.problems:
            place, _, message = problem.partition(": ")
            st.markdown(f"`{place}` {message}")
        actions.choose_options("submit")  # stays where it is, so that what was chosen is kept
        st.button("Start the study", type="primary", disabled=True, width="stretch", key="start")
        return
    st.success("The study file is valid.", icon=":material/check:")
    st.markdown(preview_markdown(_preview(Home.from_environment(), text)))
    taken = spec.name in session.study_names()
    if taken:
        st.info(f"A study {spec.name} exists already; an equal file opens it, another one needs another name.")
    options = actions.choose_options("submit")
    label = "Open the study" if taken else "Start the study"
    if st.button(label, type="primary", icon=":material/play_arrow:", width="stretch", key="start"):
        _submit(text, options)


def _submit(text: str, options: DriverOptions) -> None:
    try:
        access.require_writable()
        target = Address(study=submit(Home.from_environment(), load_spec(spec_form.FILE, text=text), options).study)
    except PltError as error:
        st.error(str(error), icon=":material/error:")
        return
    session.go(target)
    st.switch_page("views/study.py", query_params=target.to_params())


if __name__ == "__main__":
    render()
