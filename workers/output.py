"""The output of an attempt: what its code prints, logs and warns, a line per report, and the traceback of a failure.

    for item in captured(execute(request, should_stop), request):
        ...                                 not captured: only the code that makes the next item is

Captured is what the executing thread writes through Python (`sys.stdout`, `sys.stderr`, `logging`, `warnings`) while it
works; other threads and C libraries keep their own streams. What is printed is capped at `CAP` bytes; reports and the
failure are written beyond that too, and every line is in the file as soon as it is complete. Output that cannot be
written never fails a trial: the outcome's info says so.
"""

import io
import logging
import sys
import threading
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from workers.attempt_folder import AttemptFolder
from workers.protocol import MetricReport, Request, TrialOutcome, TrialRequest

CAP = 5_000_000
"""Most bytes that an attempt may print."""
_FAILURE_CHARACTERS = 100_000
"""Of a longer traceback the end is kept."""

Stream = Iterator[MetricReport | TrialOutcome]


def captured(stream: Stream, request: Request) -> Generator[MetricReport | TrialOutcome]:
    """The stream's items, with a trial's output kept in its folder. Closing this closes the stream."""
    if isinstance(request, TrialRequest):
        with Output(AttemptFolder(request.folder).output) as output, _closed_at_the_end(stream, output):
            for item in _items(stream, output):
                yield _noted(item, request, output)
    else:
        with _closed_at_the_end(stream):
            for item in stream:
                yield item


@contextmanager
def _closed_at_the_end(stream: Stream, output: "Output | None" = None) -> Iterator[None]:
    try:
        yield
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            with _writing_to(output):
                close()


def _items(stream: Stream, output: "Output") -> Stream:
    """The stream's items; what is raised instead of one is written down and raised on."""
    while True:
        try:
            with _writing_to(output):
                item = next(stream)
        except StopIteration:
            return
        except Exception:
            output.failure(traceback.format_exc())
            raise
        yield item


def _noted(item: MetricReport | TrialOutcome, request: TrialRequest, output: "Output") -> MetricReport | TrialOutcome:
    """The item, written down; an outcome says what became of the output."""
    rank = 0 if request.gang is None else request.gang.rank
    if isinstance(item, MetricReport):
        steps = request.train.steps(request.data.seq_len)
        metrics = "".join(f", {name} {value:.5g}" for name, value in item.metrics.items())
        output.line(f"step {item.step} of {steps}, tokens {item.tokens}{metrics}")
        return item
    if item.failure is not None:
        who = f"rank {rank}: " if rank else ""
        output.failure(f"{item.failure.traceback}{who}{item.failure.reason}: {item.failure.message}")
    elif rank == 0:
        output.line(f"ended after {item.seconds:.1f} s")
    return item if output.problem is None else replace(item, info={**item.info, "output": output.problem})


class Output:
    """A text file that takes at most `CAP` bytes of prints. Nothing here raises: `problem` says what went wrong."""

    def __init__(self, path: Path) -> None:
        self.problem: str | None = None
        """Why the output is not in the file, in one line."""
        self._printed, self._full = 0, False
        self._file: io.FileIO | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = io.FileIO(path, "a")
        except OSError as error:
            self._give_up(error)

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def print(self, text: str) -> None:
        """Write what the attempt's code printed, up to the cap."""
        room = CAP - self._printed
        data = text[: room + 1].encode("utf-8", "backslashreplace")
        if len(data) <= room and not self._full:
            self._write(data)
            self._printed += len(data)
        elif not self._full:
            self._full = True
            self._write(data[:room].decode("utf-8", "ignore").encode())  # to the last whole character
            self.line(f"\n[more than {CAP} bytes were printed; the rest is dropped]")

    def line(self, text: str) -> None:
        """Write a line, whatever has been printed."""
        self._write(f"{text}\n".encode("utf-8", "backslashreplace"))

    def failure(self, text: str) -> None:
        """Write why the attempt failed, whatever has been printed."""
        self.line(text.rstrip()[-_FAILURE_CHARACTERS:])

    def _write(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            self._file.write(data)
        except OSError as error:
            self._file.close()
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.problem, self._file = f"not kept: {error.strerror or error}", None


_active = threading.local()
"""`_active.output` is where the current thread's writing goes, if anywhere."""


def _current() -> Output | None:
    output: Output | None = getattr(_active, "output", None)
    return output


class _Switch(io.TextIOBase):
    """A standard stream of the process that leads to the current thread's output while there is one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.beneath: TextIO = getattr(sys, f"__{name}__")

    def install(self) -> None:
        """Stand in front of what the process writes to now."""
        stream = getattr(sys, self._name)
        if stream is not self:
            self.beneath = stream
            setattr(sys, self._name, self)

    def uninstall(self) -> None:
        """Step aside; whoever kept this stream still writes to the process's own one."""
        if getattr(sys, self._name) is self:
            setattr(sys, self._name, self.beneath)

    def write(self, text: str, /) -> int:
        """Write to the current thread's output, else to the stream beneath."""
        output = _current()
        if output is None:
            return self._own().write(text)
        output.print(text)
        return len(text)

    def flush(self) -> None:
        """Pass everything on."""
        if _current() is None:
            self._own().flush()

    def isatty(self) -> bool:
        """An output is a file, whatever is beneath."""
        return _current() is None and self._own().isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own(), name)

    def fileno(self) -> int:
        """Of the stream beneath."""
        return self._own().fileno()

    def _own(self) -> TextIO:
        stream: Any = getattr(sys, self._name)
        return self.beneath if stream is self else stream  # type: ignore[no-any-return]


class _Records(logging.Handler):
    """Log records of the current thread, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record to the current thread's output, if it has one."""
        output = _current()
        if output is not None:
            output.print(self.format(record) + "\n")


_SWITCHES = (_Switch("stdout"), _Switch("stderr"))
_RECORDS = _Records()
_RECORDS.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
_users = 0
_lock = threading.Lock()


@contextmanager
def _writing_to(output: Output | None) -> Iterator[None]:
    """What this thread prints and logs goes to `output`, if there is one."""
    _install(+1)
    _active.output = output
    try:
        yield
    finally:
        _active.output = None
        _install(-1)


def _install(change: int) -> None:
    """Count who captures, and stand in front of the process's streams while anybody does."""
    global _users
    with _lock:
        before, _users = _users, _users + change
        if before == 0:
            logging.getLogger().addHandler(_RECORDS)
            for switch in _SWITCHES:
                switch.install()
        elif _users == 0:
            logging.getLogger().removeHandler(_RECORDS)
            for switch in _SWITCHES:
                switch.uninstall()
