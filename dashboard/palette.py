"""Colours and symbols, the same meaning on every page.

The colours are Okabe and Ito's, told apart by people with any kind of colour vision, and read on light and dark
ground; every meaning that has a colour also has a symbol, a pattern or a word. Grey belongs to neither theme and is
safe on both.
"""

import math
from collections.abc import Mapping

from orchestrator.records import StudyState, TrialState

BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
GREY = "#8A8F98"
SERIES = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
"""For things without an order of their own, such as the configurations of a comparison."""

_SERIES_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "star")
_BY_LOOPS = {1: BLUE, 2: ORANGE, 3: GREEN, 4: RED, 5: PURPLE, 6: SKY}
GATE_SYMBOLS: Mapping[str, str] = {"no local branch": "circle", "learned gate": "diamond", "fixed gate": "square"}

_STATE_COLOURS: Mapping[str, str] = {
    TrialState.COMPLETE.value: GREEN,
    TrialState.FAIL.value: RED,
    TrialState.RUNNING.value: BLUE,
    StudyState.FAILED.value: RED,
    StudyState.INTERRUPTED.value: ORANGE,
    StudyState.PAUSED.value: ORANGE,
}
_STATE_BADGES: Mapping[str, tuple[str, str]] = {
    TrialState.COMPLETE.value: ("green", ":material/check:"),
    TrialState.FAIL.value: ("red", ":material/close:"),
    TrialState.RUNNING.value: ("blue", ":material/play_arrow:"),
    TrialState.PRUNED.value: ("gray", ":material/content_cut:"),
    StudyState.FAILED.value: ("red", ":material/close:"),
    StudyState.INTERRUPTED.value: ("orange", ":material/pause:"),
    StudyState.PAUSED.value: ("orange", ":material/pause:"),
}


def loop_colour(num_loops: int) -> str:
    """The colour of a loop count; grey beyond six."""
    return _BY_LOOPS.get(num_loops, GREY)


def series_colour(index: int) -> str:
    """The colour of the n-th thing of a comparison, from 0."""
    return SERIES[index % len(SERIES)]


def window_size_px(window: int | None) -> float:
    """A marker's diameter: 10 without a window, else growing with the window's logarithm."""
    if window is None:
        return 10.0
    return min(26.0, 8.0 + 2.0 * math.log2(max(window, 2)))


def state_colour(state: str) -> str:
    """The colour of a study's or trial's state."""
    return _STATE_COLOURS.get(state, GREY)


def state_badge(state: str) -> tuple[str, str]:
    """Streamlit's name of the state's colour, and its icon."""
    return _STATE_BADGES.get(state, ("gray", ":material/schedule:"))


def series_symbol(index: int) -> str:
    """Its symbol, so that colour is not all that tells things apart."""
    return _SERIES_SYMBOLS[index % len(_SERIES_SYMBOLS)]
