"""How long to wait between deliveries, so that they never slow the work of this process by more than a share.

Delivering costs processor time and, in one Python process, keeps everything else waiting while it does. What is said
waits on disk meanwhile, so being late costs nothing.
"""

import time
from collections.abc import Callable

_LONGEST = 10.0
"""Seconds; after a long delivery the share may be exceeded for the sake of whoever watches."""
_BUSY = 0.25
"""Share of a processor from which on the rest of the process counts as busy; on a crowded machine it gets no more."""


class Pace:
    """Meters one thread, which makes it and makes all of its calls."""

    def __init__(
        self,
        gather: float = 1.0,
        share: float = 0.03,
        wall: Callable[[], float] = time.monotonic,
        process: Callable[[], float] = time.process_time,
        thread: Callable[[], float] = time.thread_time,
    ) -> None:
        """`gather`: seconds for which at least to wait, so that what is said meanwhile travels together.

        `share`: most processor time to take for each second that the rest of the process works.
        """
        self._gather, self._share = gather, share
        self._wall, self._process, self._thread = wall, process, thread
        self._last = wall(), process(), thread()

    def pause(self) -> float:
        """Seconds to wait after a delivery: more when it was costly, less when the rest of the process does nothing."""
        before, self._last = self._last, (self._wall(), self._process(), self._thread())
        passed, used, ours = (now - then for now, then in zip(self._last, before, strict=True))
        busy = min(1.0, max(0.0, used - ours) / passed / _BUSY) if passed > 0 else 1.0
        return min(_LONGEST, max(self._gather, busy * ours / self._share))
