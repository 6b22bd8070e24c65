"""A real `plt` process, watched from the outside."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import psutil

POLL_SECONDS = 0.05
PATIENCE_SECONDS = 300.0
"""For anything that a driver is waited for; only a driver that hangs needs so long."""


class Hang(Exception):  # noqa: N818 - what it is
    """Something that had to happen did not."""


def wait_until(happened: Callable[[], bool], what: str, patience: float = PATIENCE_SECONDS) -> None:
    """Look until it happened; a `Hang` after so many seconds."""
    deadline = time.monotonic() + patience
    while not happened():
        if time.monotonic() > deadline:
            raise Hang(f"{what}: not after {patience:g} s")
        time.sleep(POLL_SECONDS)


_PLT = [sys.executable, "-m", "orchestrator.main"]
_WARM = """
import sys
import orchestrator.asking, orchestrator.driving, orchestrator.main, orchestrator.study
sys.stdin.read(1)
sys.exit(orchestrator.main.main(sys.argv[1:]))
"""
"""Imports what takes seconds, then waits, so that the command comes at its moment."""


class Driver:
    """One `plt` command, its output in a file."""

    def __init__(
        self, arguments: list[str], environment: Mapping[str, str], output: Path, *, warm: bool = False
    ) -> None:
        """A `warm` one does nothing before `go`."""
        self.output, self.began = output, time.time()
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                [*([sys.executable, "-c", _WARM] if warm else _PLT), *arguments],
                env={**os.environ, **environment},
                stdin=subprocess.PIPE if warm else subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def go(self) -> Self:
        """Let a warm one begin."""
        assert self._process.stdin is not None, "only a warm one waits"
        with self._process.stdin as stdin:
            stdin.write(b"!")
        return self

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def ended(self) -> bool:
        """Whether it is over."""
        return self._process.poll() is not None

    def wait(self) -> int:
        """Its exit code; a `Hang` when there is none for too long."""
        try:
            wait_until(self.ended, f"the end of plt (pid {self.pid})")
        except Hang as hang:
            raise Hang(f"{hang}; it said: {self.said()[-1500:]}") from None
        return self._process.wait()

    def said(self) -> str:
        """Everything that it has printed so far."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for its death."""
        self._process.kill()
        self._process.wait()

    def descendants(self, of_a_kind: Callable[[str], bool]) -> list[psutil.Process]:
        """Living processes below it whose title, the first word of their command line, is of a kind."""
        return [process for process in _below(self.pid) if of_a_kind(_title(process))]


def is_worker(title: str) -> bool:
    """Whether a process is one of our Ray actors."""
    return title.startswith("ray::Worker")


def processes_of(home: Path) -> list[psutil.Process]:
    """Every living process that was started for a home, whoever its parent is now."""
    return [process for process in psutil.process_iter() if _home_of(process) == str(home)]


def _below(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _title(process: psutil.Process) -> str:
    try:
        return (process.cmdline() or [""])[0]
    except psutil.Error:
        return ""


def _home_of(process: psutil.Process) -> str | None:
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else process.environ().get("PLT_HOME")
    except psutil.Error:
        return None
