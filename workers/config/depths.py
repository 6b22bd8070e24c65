"""Sets of depths, the difficulty axis of a generated task: `4`, `"1-4"` or `"2,4,8,16"`.

A task is trained on every depth of its set equally often. Evaluation scores the same depths, at most eight of them, and
with `extrapolate: F` also up to four deeper ones, up to F times the deepest trained one.
"""

import re

Depths = int | str
"""One depth, or text that lists several: whole numbers and ranges, separated by commas."""

SCORED = 8
"""Most trained depths that an evaluation scores."""
DEEPER = 4
"""Most depths beyond the trained ones that an evaluation scores."""
_MOST = 10_000
_PART = re.compile(r"\s*(\d{1,6})\s*(?:-\s*(\d{1,6})\s*)?")


def parse_depths(written: Depths) -> tuple[int, ...]:
    """The depths, ascending; a `ValueError` says what is allowed."""
    if isinstance(written, bool) or not isinstance(written, int | str):
        raise ValueError("must be a whole number, a range such as 1-4, or a list such as 2,4,8")
    found: set[int] = set()
    for part in str(written).split(","):
        match = _PART.fullmatch(part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not low <= high <= _MOST:
            raise ValueError(f"must be a whole number, a range such as 1-4, or a list such as 2,4,8, up to {_MOST:,}")
        found |= set(range(low, high + 1))
    return tuple(sorted(found))


def write_depths(depths: tuple[int, ...]) -> Depths:
    """The one way in which a set is written, so that equal sets are equal settings."""
    if len(depths) == 1:
        return depths[0]
    if depths == tuple(range(depths[0], depths[-1] + 1)):
        return f"{depths[0]}-{depths[-1]}"
    return ",".join(map(str, depths))


def scored_depths(trained: tuple[int, ...], extrapolate: int) -> tuple[int, ...]:
    """The depths that an evaluation scores, ascending: trained ones, then deeper ones."""
    return (*_spread(trained, SCORED), *_spread(tuple(range(trained[-1] + 1, trained[-1] * extrapolate + 1)), DEEPER))


def _spread(depths: tuple[int, ...], most: int) -> tuple[int, ...]:
    """At most so many of these depths, evenly spread, the last one among them, and the first where several are."""
    if len(depths) <= most:
        return depths
    last = len(depths) - 1
    return tuple(depths[round(index * last / (most - 1))] for index in range(most))
