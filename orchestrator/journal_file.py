"""Optuna's journal file, made to survive kills and full disks.

Three things differ from Optuna's own file backend when it writes. The lock is the kernel's: it is gone with the process
that held it, so nobody waits for a dead writer and nobody steals a slow one's. Whoever has the lock first cuts off what
a killed writer left half written, because an entry behind it would be unreadable. And an entry is appended as a whole
or not at all: when the disk is full the file is as before, and `on_trouble` decides whether to try again. Reading is
the same, by a faster parser, and does not keep where each entry lies.

What a trial was told is on the disk when `append_logs` returns, and with it everything before it; entries that lead up
to it are handed to the operating system at once but not waited for. So a kill loses nothing, and a power cut at most
what had not been told yet.

POSIX; one machine, or a shared file system whose `flock` works between its hosts (NFS 4).
"""

import fcntl
import json
import logging
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._storage import JournalOperation

from orchestrator.journal_store import Trouble, give_up

_logger = logging.getLogger(__name__)

_UNTOLD = frozenset({JournalOperation.CREATE_TRIAL, JournalOperation.SET_TRIAL_USER_ATTR})
"""Entries that lead up to what a trial is told with."""


class JournalFile(JournalFileBackend):
    """One journal, appended to by several processes, read by anyone."""

    def __init__(self, path: Path, on_trouble: Trouble = give_up) -> None:
        super().__init__(str(path))
        self._path, self._on_trouble = path, on_trouble
        self._read_up_to = (0, 0)
        """How many entries were read so far, and their bytes."""

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """The entries after so many. The last one may still be in writing: then it is not there yet.

        Raises:
            ValueError: An entry before the last one is damaged.
        """
        number, offset = self._read_up_to if self._read_up_to[0] <= log_number_from else (0, 0)
        with self._path.open("rb") as file:
            file.seek(offset)
            for line in file:
                entry = parse_entry(line) if line.endswith(b"\n") else None
                if entry is None:
                    if file.readline():
                        raise ValueError(f"entry {number + 1} cannot be read")
                    return
                number, offset = number + 1, offset + len(line)
                self._read_up_to = (number, offset)
                if number > log_number_from:
                    yield entry

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append the entries; while that fails, ask `on_trouble` what to do."""
        text = "".join(entry_text(log) + "\n" for log in logs).encode()
        durable = any(log["op_code"] not in _UNTOLD for log in logs)
        while True:
            try:
                self._append(text, durable)
                return
            except OSError as error:
                self._on_trouble(error)

    def _append(self, text: bytes, durable: bool) -> None:
        with _locked(self._path) as handle:
            before = os.fstat(handle).st_size
            try:
                written = 0
                while written < len(text):
                    written += os.write(handle, text[written:])
                if durable:
                    os.fsync(handle)
            except OSError:
                os.ftruncate(handle, before)
                raise


def entry_text(entry: Mapping[str, Any]) -> str:
    """An entry as one line of ASCII, without its end."""
    return json.dumps(entry, separators=(",", ":"))


def parse_entry(text: bytes | str) -> dict[str, Any] | None:
    """What such a line says; None when it is damaged."""
    try:
        entry: dict[str, Any] = orjson.loads(text)
    except orjson.JSONDecodeError:  # also for numbers that are not finite, which Python's own writer and reader know
        try:
            entry = json.loads(text)
        except ValueError:
            return None
    return entry


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Hold the file's lock, with what a killed writer left half written cut off."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        _drop_half_line(handle, path)
        yield handle
    finally:
        os.close(handle)


def _drop_half_line(handle: int, path: Path) -> None:
    """Cut the file after its last whole entry; with the lock held no living writer is in the middle of one."""
    size = os.fstat(handle).st_size
    if size == 0 or os.pread(handle, 1, size - 1) == b"\n":
        return
    whole, block = size, 65536
    while whole > 0:
        start = max(0, whole - block)
        found = os.pread(handle, whole - start, start).rfind(b"\n")
        if found >= 0:
            whole = start + found + 1
            break
        whole = start
    _logger.warning("%s ended in half an entry (%d bytes), which was dropped", path, size - whole)
    os.ftruncate(handle, whole)
