"""One driver per study's folder: a lock on a file in it, held as long as the driver lives.

The operating system frees it however the driver ends, `kill -9` included. Its text, `host:pid`, is for people; only the
lock itself says whether the driver lives.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import StudyError
from orchestrator.file_lock import open_lock
from orchestrator.home import Home
from orchestrator.process_name import process_name

_TRIES, _PAUSE_SECONDS = 10, 0.02
"""A reader that looks whether a driver lives holds the lock for microseconds."""


@contextmanager
def folder_lock(home: Home, name: str) -> Iterator[None]:
    """Hold the folder of a study; a `StudyError` names the host and pid of the one that is."""
    path = home.driver_lock(name)
    handle = open_lock(path)
    try:
        if not _acquire(handle):
            driver = os.pread(handle, 300, 0).decode() or "another process"
            raise StudyError(
                f"study {name} is being driven by {driver}; wait for it or stop it, see `plt status {name}`"
            )
        os.ftruncate(handle, 0)
        os.pwrite(handle, process_name().encode(), 0)
        yield
    finally:
        os.close(handle)


def folder_holder(home: Home, name: str) -> str | None:
    """`host:pid` of the process that holds a study's folder now, or None."""
    try:
        handle = os.open(home.driver_lock(name), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(handle, 300, 0).decode() or "unknown"
    finally:
        os.close(handle)
    return None


def _acquire(handle: int) -> bool:
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False
