"""One device of one node, shared by trials or held alone by a latency benchmark: all studies of this user honour it.

Two files per device, locked with `flock(2)`, so the kernel releases everything when a process dies:

    turnstile   held exclusively by whoever waits for or has the device alone; passed through by everybody else
    device      held shared by running trials, exclusively by a benchmark

    with DeviceLock("cpu").shared() as hold:            with DeviceLock("cpu").exclusive():
        for step in steps:                                  measure()
            if hold.is_wanted():
                hold.release()
                hold.acquire()
            train(step)

A waiting benchmark holds the turnstile: no trial starts, running ones let go at their next step, and it has the device
as soon as the last one did. Limits: one node, POSIX; whoever holds a lock and asks for another on the same device waits
for itself; a child forked while a lock is held keeps it until it ends too.
"""

import fcntl
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class DeviceLock:
    """The lock of the device called `name` (letters, digits, `.`, `_`, `-`), kept in `folder`.

    The folder is made if missing; by default it is this user's own in the system's temporary folder.
    """

    def __init__(self, name: str, folder: Path | None = None) -> None:
        if not re.fullmatch(r"[\w.-]+", name):
            raise ValueError(f"device name is {name!r}; use letters, digits, '.', '_' and '-'")
        self.folder = folder or Path(tempfile.gettempdir()) / f"plt-{os.getuid()}"
        self.turnstile = self.folder / f"{name}.turnstile"
        self.device = self.folder / f"{name}.device"

    @contextmanager
    def shared(self, take: Callable[["SharedHold"], None] | None = None) -> Iterator["SharedHold"]:
        """Hold the device together with other trials; waits while a benchmark waits or runs, or as `take` does."""
        with self._opened(self.turnstile) as turnstile, self._opened(self.device) as device:
            hold = SharedHold(turnstile, device)
            (take or SharedHold.acquire)(hold)
            yield hold

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the device alone; waits for running trials to yield or end, and for earlier benchmarks."""
        with self._opened(self.turnstile) as turnstile, self._opened(self.device) as device:
            fcntl.flock(turnstile, fcntl.LOCK_EX)
            fcntl.flock(device, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _opened(self, path: Path) -> Iterator[int]:
        """The file, made if missing; closing it releases its lock."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.folder.is_symlink() or self.folder.stat().st_uid != os.getuid():
            raise PermissionError(
                f"{self.folder} belongs to somebody else; remove it or set TMPDIR to a folder of yours"
            )
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


class SharedHold:
    """A device held shared, on the open files of its lock."""

    def __init__(self, turnstile: int, device: int) -> None:
        self._turnstile = turnstile
        self._device = device

    def acquire(self) -> None:
        """Pass the turnstile and take the device shared."""
        fcntl.flock(self._turnstile, fcntl.LOCK_SH)
        fcntl.flock(self._device, fcntl.LOCK_SH)
        fcntl.flock(self._turnstile, fcntl.LOCK_UN)

    def try_acquire(self) -> bool:
        """Take the device shared if no benchmark waits for it or has it; waits for nothing."""
        if self.is_wanted():
            return False
        try:
            fcntl.flock(self._device, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Let the device go, until it is acquired again."""
        fcntl.flock(self._device, fcntl.LOCK_UN)

    def is_wanted(self) -> bool:
        """Whether a benchmark waits for the device or has it; two system calls when none does."""
        try:
            fcntl.flock(self._turnstile, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._turnstile, fcntl.LOCK_UN)
        return False
