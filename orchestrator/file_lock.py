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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ServiceError(f"{path} cannot be written ({error.strerror}); set PLT_HOME to a folder of yours") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
