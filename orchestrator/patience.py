"""What a driver does while its storage cannot be written: it says so, waits, and goes on when there is room again."""

import errno
from collections.abc import Callable

from orchestrator.errors import DatabaseError
from orchestrator.listener import Listener

_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT})
"""A full disk or quota, or a file server that is away."""
_PAUSE_SECONDS = 1.0


def remedy(error: OSError) -> str:
    """What a person can do about it."""
    return error.remedy if isinstance(error, DatabaseError) else "make room"


class Patience:
    """Is asked about every write that failed; returns to have it tried again."""

    def __init__(self, listener: Listener, should_stop: Callable[[], bool], wait: Callable[[float], None]) -> None:
        self._listener, self._should_stop, self._wait = listener, should_stop, wait
        self._said = ""

    def __call__(self, error: OSError) -> None:
        """Wait a moment; raises the error when it will not pass, or when somebody asks to stop."""
        if error.errno not in _PASSING or self._should_stop():
            raise error
        text = f"the study cannot be written ({error.strerror}): paused; {remedy(error)}, and it goes on by itself"
        if text != self._said:
            self._listener.notice(text)
            self._said = text
        self._wait(_PAUSE_SECONDS)
