"""SIGTERM ends a study as Ctrl-C does: cleanly, ready to be continued."""

import signal
from types import FrameType


def interrupt_on_sigterm() -> None:
    """From now on, SIGTERM raises `KeyboardInterrupt` in this process."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
