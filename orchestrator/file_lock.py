"""A lock on a file, held while a block runs; the operating system frees it however the process ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import ServiceError


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Wait for the lock and hold it; a `ServiceError` when the file cannot be made."""
    handle = open_lock(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def open_lock(path: Path) -> int:
    """A handle on the file, which is made if need be; a `ServiceError` when it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ServiceError(f"{path} cannot be written ({error.strerror}); set PLT_HOME to a folder of yours") from error
