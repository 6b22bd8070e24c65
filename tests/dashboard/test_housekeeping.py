"""Garbage in cycles goes although Python itself would not look for it, again and again."""

import gc
import weakref
from threading import Event

from dashboard.housekeeping import keep_tidy


class Circle:
    """Holds itself, and says when it goes."""

    def __init__(self, gone: Event) -> None:
        self.itself = self
        weakref.finalize(self, gone.set)


def test_what_only_a_cycle_holds_goes_each_time() -> None:
    gc.disable()
    enough = keep_tidy(every=0.01)
    try:
        for _ in range(2):
            gone = Event()
            Circle(gone)
            assert gone.wait(30)
    finally:
        enough.set()
        gc.enable()
