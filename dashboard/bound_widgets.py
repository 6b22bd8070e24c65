"""Widgets bound to a value that the page decides: what the address or the study file says.

The browser hears of such a value only when the run's messages arrive. Whatever it asks for until then still reports
what the widget showed before, and Streamlit takes that for a change: it would undo what was chosen a moment ago. So a
widget that is to show something else than it says gets a new key, and with it a new identity; what the old one still
reports is not heeded. A widget that a person changed says already what is to be shown, and keeps its key and the focus.
"""

import math
from collections.abc import Callable
from typing import Any

import streamlit as st


def bound(name: str, value: Any, write: Callable[[Any], object]) -> dict[str, Any]:
    """Key and callback of widget `name`, which is drawn once a run and is given `value` as its first one.

    `write` is told what a person changed it to.
    """
    shown = _key(name)
    if shown in st.session_state and not _same(st.session_state[shown], value):
        st.session_state[_generation(name)] = st.session_state.get(_generation(name), 0) + 1
    key = _key(name)

    def changed() -> None:
        if key == _key(name):
            write(st.session_state[key])

    return {"key": key, "on_change": changed}


def _key(name: str) -> str:
    generation = st.session_state.get(_generation(name), 0)
    return f"{name}-{generation}" if generation else name


def _generation(name: str) -> str:
    return f"generation of {name}"


def _same(said: Any, value: Any) -> bool:
    """Whether a widget says this; a number may have been converted to another unit and back."""
    if isinstance(said, float) and isinstance(value, float):
        return math.isclose(said, value, rel_tol=1e-9)
    return bool(said == value)
