"""Constraints on metrics, as a study file writes them: `decode/ms_per_token <= 12`, `kv/bytes_per_sequence <= 4MB`.

Pure. The amount of a constraint is positive when it is violated, zero or negative when it is met, which is Optuna's
convention; a strict comparison that is exactly met is violated by the smallest positive float.
"""

import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.quantity import count, size

_COUNTS = ("parameters", "tokens", "flops")
_SHAPE = re.compile(r"\s*([^\s<>=!]+)\s*(<=|>=|<|>)\s*(\S+)\s*")


@dataclass(frozen=True)
class Constraint:
    """One bound on one metric."""

    metric: str
    operator: str
    """`<=`, `<`, `>=` or `>`."""
    bound: float

    def amount(self, value: float) -> float:
        """By how much the value violates the bound, in the metric's unit; at most 0 when it is met."""
        excess = value - self.bound if self.operator in ("<=", "<") else self.bound - value
        if excess == 0 and self.operator in ("<", ">"):
            return sys.float_info.min
        return excess


def parse_constraint(text: str) -> Constraint:
    """Read `METRIC <= AMOUNT`; a `ValueError` says what is allowed."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise ValueError(
            "must be METRIC, then one of <=, <, >=, >, then an amount, such as 'decode/ms_per_token <= 12'"
        )
    metric, operator, amount = match.groups()
    return Constraint(metric=metric, operator=operator, bound=_bound(metric, amount))


def _bound(metric: str, amount: str) -> float:
    try:
        bound = float(amount)
    except ValueError:
        bound = _with_unit(metric, amount)
    if not math.isfinite(bound):
        raise ValueError(f"must compare with a finite number, and {amount!r} is none")
    return bound


def _with_unit(metric: str, amount: str) -> float:
    """Bytes are written with units of memory, counts with prefixes; what is measured is written plainly."""
    name = metric.rsplit("/", 1)[-1]
    if "bytes" in name:
        return float(str(size(amount)))
    if name in _COUNTS:
        return float(str(count(amount)))
    raise ValueError(f"must compare with a plain number in the metric's own unit, and {amount!r} is none")


def violations(constraints: Iterable[str], metrics: Mapping[str, float]) -> dict[str, float]:
    """Constraint text to amount, for the constraints whose metric is known."""
    return {
        text: constraint.amount(metrics[constraint.metric])
        for text in constraints
        if (constraint := parse_constraint(text)).metric in metrics
    }


def violated_constraints(constraints: Iterable[str], metrics: Mapping[str, float]) -> tuple[str, ...]:
    """The constraints that these metrics are known to break."""
    return tuple(text for text, amount in violations(constraints, metrics).items() if amount > 0)
