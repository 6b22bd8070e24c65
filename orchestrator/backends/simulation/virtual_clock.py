"""Time that passes only when told."""

from collections.abc import Callable


class VirtualClock:
    """Seconds since the start of a simulation."""

    def __init__(self, charge: Callable[[], float] | None = None) -> None:
        """`charge`: a real clock, of processor time for instance, whose seconds pass here too at every `charge`, so
        that a slow driver lets devices wait; without it only waiting takes time, and everything repeats exactly.
        """
        self._charge = charge
        self._charged = charge() if charge else 0.0
        self._now = 0.0

    def __call__(self) -> float:
        """Seconds now."""
        return self._now

    def charge(self) -> None:
        """Let as much time pass as really has since the last call."""
        if self._charge is not None:
            before, self._charged = self._charged, self._charge()
            self._now += self._charged - before

    def advance_to(self, moment: float) -> None:
        """Let it be that moment, unless it is later already."""
        self._now = max(self._now, moment)
