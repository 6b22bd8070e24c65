"""SIGTERM ends a study as Ctrl-C does: cleanly, ready to be continued."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """While inside, SIGTERM raises `KeyboardInterrupt`."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
