"""What keeps a dashboard's memory flat while people come and go.

Python looks for garbage in cycles rarely here (`dashboard.app`), because each look walks all trials of a large study,
and every view leaves some: widgets, messages and the charts that they carry. So a thread looks now and then, whatever
was made since, and gives freed memory back to the system, which glibc would keep for the thread that it was made by.

Limits: nothing is given back where the C library has no `malloc_trim` (it is glibc's own).
"""

import ctypes
import gc
from threading import Event, Thread

EVERY = 20.0
"""Seconds between two looks: a tenth of a second each beside a study of 10,000 trials."""
ARENAS = {"MALLOC_ARENA_MAX": "2"}
"""For the server's environment: how many heaps glibc has. By default there are eight per core, each with gaps of its
own, and every view is drawn by a new thread."""


def tidy() -> None:
    """Free what only cycles hold, and hand free memory back."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_tidy(every: float = EVERY) -> Event:
    """Tidy up every so many seconds from now on, in a thread that ends with the process or when the event is set."""
    enough = Event()

    def work() -> None:
        while not enough.wait(every):
            tidy()

    Thread(target=work, name="housekeeping", daemon=True).start()
    return enough
