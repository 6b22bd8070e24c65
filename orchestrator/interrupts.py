"""How a person stops a study: Ctrl-C, SIGTERM, or a terminal that closes, all the same way.

The first signal only asks: the runner looks between two events, where everything is written and nothing is half told.
The second one raises `KeyboardInterrupt` at once, for a step that takes too long.
"""

import signal
from types import FrameType
from typing import Any, Self

import click

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Takes over the signals of this process while it is entered; ask it whether to stop."""

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._signalled) for number in _SIGNALS}
        return self

    def __exit__(self, *_exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def requested(self) -> bool:
        """Whether somebody asked to stop."""
        return self._asked

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        if number == signal.SIGINT:
            click.echo("stopping at the next report; once more to stop at once", err=True)
