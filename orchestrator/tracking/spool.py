"""A file of lines that wait to be delivered: appended by one thread, read and crossed off by another.

    {"delivered":                  40}      how many bytes of this file are delivered, in a line of fixed width
    one line of JSON for each thing said, oldest first

The file outlives its process: what a killed process said and did not deliver is there when the next one opens it. A
line may be read again when the process dies between its delivery and `delivered`, so delivery must bear repetition.
Lines reach the operating system, not the disk: they survive a kill, a power cut may take the last ones. A line counts
once its newline is written; half a line at the end is cut off and `trouble` says so. An append that fails, as on a full
disk, leaves the file as it was. One process at a time: the study's driver. Anybody may call `waiting_lines`.
"""

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

_HEADER = re.compile(rb'\{"delivered": *(\d+)\}\n')
_HEADER_BYTES = 36
_BLOCK = 1 << 16
"""Bytes read at a time."""
_LONG = 1 << 20
"""Delivered bytes at the front from which on the file is shortened, and most bytes to move when it is."""


class Spool:
    """One file. Positions are bytes since this object was made; they stay right when the file is shortened."""

    def __init__(self, path: Path) -> None:
        """Open the file, making it when there is none; an OSError when that cannot be done."""
        self._path = path
        self._lock = threading.Lock()
        self._gone = 0
        """Bytes that were cut off the front."""
        self.trouble = ""
        """What is wrong with the file, or empty."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._aside = path.with_name(f".{path.name}.aside")
        self._aside.unlink(missing_ok=True)  # of a process that was killed while it shortened the file
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._recover()
        except BaseException:
            os.close(self._file)
            raise

    def append(self, line: bytes) -> None:
        """Add a line, given with its newline; an OSError leaves the file as it was."""
        with self._lock:
            try:
                _write(self._file, line, self._size)
            except OSError:
                os.ftruncate(self._file, self._size)
                raise
            self._size += len(line)
            self._waiting += 1

    def read(self, most: int, end: int | None = None) -> tuple[list[bytes], int]:
        """Up to `most` of the lines that wait, without their newlines and none beyond the position `end`, and the
        position behind them: one line, however long, and with it no more than a block of bytes holds.
        """
        with self._lock:
            if self._file < 0:
                return [], self.end
            start = self._delivered
            limit = self._size if end is None else min(self._size, end - self._gone)
            text = b""
            while b"\n" not in text and start + len(text) < limit:
                block = min(max(_BLOCK, len(text)), limit - start - len(text))
                text += os.pread(self._file, block, start + len(text))
        lines = text.split(b"\n")[:-1][:most]
        return lines, self._gone + start + sum(len(line) + 1 for line in lines)

    def delivered(self, position: int, lines: int) -> None:
        """Cross off everything before a position that `read` gave; nothing happens once the spool is closed."""
        with self._lock:
            if self._file < 0:
                return
            self._delivered = position - self._gone
            self._waiting -= lines
            try:
                self._cross_off()
            except OSError as error:
                self.trouble = f"{self._path} cannot be updated ({error.strerror}); it may be delivered again"

    @property
    def waiting(self) -> int:
        """Lines that wait."""
        return self._waiting

    @property
    def end(self) -> int:
        """The position behind the last line."""
        return self._gone + self._size

    def close(self) -> None:
        """Let go of the file; it is deleted when nothing waits in it."""
        with self._lock:
            if self._file < 0:
                return
            os.close(self._file)
            self._file = -1
            if not self._waiting:
                self._path.unlink(missing_ok=True)

    def _recover(self) -> None:
        """Find the cursor and the end of the last whole line."""
        size = os.fstat(self._file).st_size
        whole = _end_of_lines(self._file, size)
        cursor = _cursor(self._file)
        if whole < size:
            self.trouble = f"{self._path} ended in half a line ({size - whole} bytes), which was dropped"
            os.ftruncate(self._file, whole)
        self._size = max(whole, _HEADER_BYTES)
        self._delivered = min(cursor, self._size)
        _write(self._file, _header(self._delivered), 0)
        self._waiting = sum(block.count(b"\n") for block in _blocks(self._file, self._delivered))

    def _cross_off(self) -> None:
        _write(self._file, _header(self._delivered), 0)
        if self._delivered == self._size:
            self._empty()
        elif self._delivered - _HEADER_BYTES >= _LONG and self._size - self._delivered <= _LONG:
            self._shorten()

    def _empty(self) -> None:
        """Free the disk. Should the process die half-way, what was delivered is delivered again, which is harmless."""
        _write(self._file, _header(_HEADER_BYTES), 0)
        os.ftruncate(self._file, _HEADER_BYTES)
        self._gone += self._size - _HEADER_BYTES
        self._size = self._delivered = _HEADER_BYTES

    def _shorten(self) -> None:
        """Cut what was delivered off the front, by way of a second file that takes the place of the first."""
        rest = os.pread(self._file, self._size - self._delivered, self._delivered)
        handle = os.open(self._aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            _write(handle, _header(_HEADER_BYTES) + rest, 0)
            self._aside.replace(self._path)
        except OSError:
            os.close(handle)
            self._aside.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._file = handle
        self._gone += self._delivered - _HEADER_BYTES
        self._size, self._delivered = _HEADER_BYTES + len(rest), _HEADER_BYTES


def waiting_lines(path: Path) -> Iterator[bytes]:
    """The whole lines that wait in a file, also while its process works; none when there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(_cursor(file.fileno()))
            yield from (line for line in file if line.endswith(b"\n"))
    except FileNotFoundError:
        return


def _header(cursor: int) -> bytes:
    return b'{"delivered": ' + str(cursor).rjust(_HEADER_BYTES - 16).encode() + b"}\n"


def _cursor(file: int) -> int:
    """Where the lines that wait begin: all of them do when the header cannot be read or points into a line."""
    found = _HEADER.fullmatch(os.pread(file, _HEADER_BYTES, 0))
    cursor = int(found[1]) if found else _HEADER_BYTES
    size = os.fstat(file).st_size
    inside = _HEADER_BYTES < cursor < size and os.pread(file, 1, cursor - 1) != b"\n"
    return _HEADER_BYTES if inside or cursor < _HEADER_BYTES else cursor


def _end_of_lines(file: int, size: int) -> int:
    """Where the last whole line ends."""
    start = size
    while start > 0:
        start = max(0, start - _BLOCK)
        found = os.pread(file, min(_BLOCK, size - start), start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
    return 0


def _blocks(file: int, start: int) -> Iterator[bytes]:
    while block := os.pread(file, _BLOCK, start):
        yield block
        start += len(block)


def _write(file: int, text: bytes, offset: int) -> None:
    """Write all of a text at a place; a full disk may take a part of it first and refuse only the rest."""
    while text:
        written = os.pwrite(file, text, offset)
        text, offset = text[written:], offset + written
