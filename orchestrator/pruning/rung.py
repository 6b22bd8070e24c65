"""Rungs: the training-token counts at which trials are judged, and a trial as it stood at one of them."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RungEntry:
    """One trial at one rung. Only one entry per trial: a trial judged there again replaces its earlier entry."""

    number: int
    """The trial's number."""
    costs: tuple[float, ...]
    """Every objective known there, turned so that small is better, finite; as many for every entry of a rung."""
    violation: float = 0.0
    """By how much constraints are broken, all together: 0 when feasible, else positive."""


def entry_of(number: int, entries: Sequence[RungEntry]) -> RungEntry:
    """The entry of a trial; a `ValueError` when it has none."""
    for entry in entries:
        if entry.number == number:
            return entry
    raise ValueError(f"trial {number} has no entry among {[entry.number for entry in entries]}; add it before asking")


def start_of(rung: int, min_tokens: int, reduction_factor: float) -> int:
    """Tokens at rung 0, 1, ...: `min_tokens * reduction_factor^rung`, rounded up."""
    return math.ceil(min_tokens * float(reduction_factor) ** rung)


def geometric_rungs(min_tokens: int, reduction_factor: float, tokens_total: int) -> tuple[int, ...]:
    """The tokens at every rung below `tokens_total`, ascending and distinct."""
    starts = (start_of(rung, min_tokens, reduction_factor) for rung in itertools.count())
    return tuple(dict.fromkeys(itertools.takewhile(lambda tokens: tokens < tokens_total, starts)))
