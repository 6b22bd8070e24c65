"""SIGTERM, and a terminal that closes, end a study as Ctrl-C does: cleanly, ready to be continued."""

import signal
from types import FrameType


def interrupt_on_signals() -> None:
    """From now on, SIGTERM and SIGHUP raise `KeyboardInterrupt` in this process."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
