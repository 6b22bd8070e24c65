"""One searched parameter as two short texts of a form, and back: pure.

values   1, 2, 3          choices
         0.001 to 0.01    a range; with `log`, or `step 0.001`, behind it
when     num_loops > 1, variant = plt | loop
"""

import re
from collections.abc import Mapping
from typing import Any

_RANGE = re.compile(r"\s*(\S+)\s+to\s+(\S+)\s*(log)?\s*(?:step\s+(\S+))?\s*")
_CONDITION = re.compile(r"\s*(\w+)\s*(>=|<=|!=|>|<|=)\s*(.+?)\s*")


def scalar(text: str) -> Any:
    """The number, truth value or word that a person typed."""
    word = text.strip().strip("'\"")
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def entry(values: str, when: str) -> dict[str, Any]:
    """What the study file says for these texts; what cannot be read is left for its checks."""
    written: dict[str, Any]
    if (match := _RANGE.fullmatch(values)) is not None:
        low, high, log, step = match.groups()
        written = {"low": scalar(low), "high": scalar(high)}
        written |= ({"log": True} if log else {}) | ({"step": scalar(step)} if step else {})
    else:
        written = {"choices": [scalar(one) for one in values.split(",") if one.strip()]}
    conditions = dict(_condition(one) for one in when.split(",") if one.strip())
    return {**written, "when": conditions} if conditions else written


def _condition(text: str) -> tuple[str, Any]:
    match = _CONDITION.fullmatch(text)
    if match is None:
        return text.strip(), None
    knob, sign, operand = match.groups()
    if sign != "=":
        return knob, f"{sign}{operand}"
    options = [scalar(one) for one in operand.split("|")]
    return knob, options[0] if len(options) == 1 else options


def values_text(written: Any) -> str:
    """The first text for what a study file says."""
    if not isinstance(written, Mapping):
        return str(written)
    if "choices" in written:
        choices = written["choices"]
        return ", ".join(_word(choice) for choice in choices) if isinstance(choices, list) else str(choices)
    text = f"{written.get('low')} to {written.get('high')}" + (" log" if written.get("log") else "")
    return text + (f" step {written['step']}" if "step" in written else "")


def when_text(written: Any) -> str:
    """The second one."""
    conditions = written.get("when", {}) if isinstance(written, Mapping) else {}
    return ", ".join(_condition_text(knob, operand) for knob, operand in conditions.items())


def _condition_text(knob: str, operand: Any) -> str:
    if isinstance(operand, list):
        return f"{knob} = {' | '.join(_word(one) for one in operand)}"
    text = _word(operand)
    signed = re.match(r"\s*(>=|<=|!=|>|<)\s*(.*)", text)
    return f"{knob} {signed[1]} {signed[2]}" if signed else f"{knob} = {text}"


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
