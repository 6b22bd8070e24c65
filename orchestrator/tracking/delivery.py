"""What can come of a delivery to a tracking service."""

from collections.abc import Callable
from enum import Enum, auto

Moved = Callable[[], None]
"""Is called now and then while something long goes on, so that nobody thinks that it hangs."""


class Verdict(Enum):
    """What a failed delivery means."""

    RETRY = auto()
    """It may succeed soon."""
    WAIT = auto()
    """It will not until somebody does something."""
    REFUSED = auto()
    """It never will."""


class DeliveryError(Exception):
    """A delivery failed; the text says why in one line, for people."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict
