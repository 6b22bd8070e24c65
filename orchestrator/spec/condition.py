"""When a searched parameter applies: `when: {num_loops: ">1", local: swa, variant: [plt, loop]}`.

Every named knob must meet its condition: a plain value means equal, a list one of, and text that begins with `>`, `>=`,
`<`, `<=` or `!=` compares. A knob without a value meets no comparison but `!=`.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.spec.knobs import KNOBS

_COMPARISON = re.compile(r"\s*(>=|<=|!=|>|<)\s*(\S+)\s*")
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Condition:
    """One knob's part of a `when`."""

    knob: str
    operator: str
    """`in`, or a comparison."""
    operands: tuple[Any, ...]
    """The values that `in` allows, or the one that is compared with."""

    def holds(self, knobs: Mapping[str, Any]) -> bool:
        """Whether the knobs known so far meet it."""
        value = knobs.get(self.knob)
        if self.operator == "in":
            return value in self.operands
        if self.operator == "!=":
            return bool(value != self.operands[0])
        return _is_number(value) and _COMPARE[self.operator](value, self.operands[0])


def parse_condition(knob: str, written: object) -> Condition:
    """Read one entry of a `when`; a `ValueError` says what is allowed."""
    if isinstance(written, str) and (match := _COMPARISON.fullmatch(written)):
        operand = KNOBS[knob].parse(_plain(match[2]))
        if match[1] != "!=" and not _is_number(operand):
            raise ValueError(f"compares {knob} with {match[2]!r}, which is no number; use a list of the allowed values")
        return Condition(knob, match[1], (operand,))
    allowed = written if isinstance(written, list | tuple) else [written]
    if not allowed:
        raise ValueError(f"allows no value of {knob}; leave the condition out, or list values")
    return Condition(knob, "in", tuple(KNOBS[knob].parse(value) for value in allowed))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(text: str) -> object:
    """The number or truth value that a word of a comparison stands for, else the word."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
