"""A driver that is started from outside a terminal, as a process of its own: it lives on when whoever started it ends.

It is `plt resume` or `plt retry`, so it checks what the command line checks. What it prints goes to the study's
`driver.log`; how it was started stands in `launch.json`. While a started driver lives, or anybody else drives the
study, no second one is started: a double click, or two browser tabs, are one start.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread

import psutil

from orchestrator.driver_lock import living_driver
from orchestrator.errors import ServiceError, StudyError
from orchestrator.file_lock import file_lock
from orchestrator.home import Home, without_secrets, write_aside
from orchestrator.process_name import process_name

_TAIL_BYTES = 64 * 1024
_CLOCK_SECONDS = 5.0
"""When a process was created is counted from the machine's start, which the clock's corrections move."""
_PROGRAM = (sys.executable, "-m", "orchestrator.main")

Spawn = Callable[[Sequence[str], Path, Mapping[str, str]], int]
"""Starts a program with its output in a file and variables added to the environment; gives its process id."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A driver that was started."""

    command: tuple[str, ...]
    """`plt`'s arguments."""
    host: str
    pid: int
    began: float
    """When the process was created, in seconds since the epoch: a process id may be given again."""

    @property
    def alive(self) -> bool:
        """Whether that process still runs; False on another host, which cannot be seen from here."""
        if self.host != _host():
            return False
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.began) < _CLOCK_SECONDS
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


class DriverLaunch:
    """Starts the driver of one study, and tells what became of it."""

    def __init__(self, home: Home, study: str, spawn: Spawn | None = None) -> None:
        self._home, self._study, self._spawn = home, study, spawn or spawn_detached

    def start(self, command: Sequence[str]) -> Launch:
        """Start `plt COMMAND...`; a `StudyError` when the study has a driver, or one is being started."""
        with file_lock(self._home.launch_lock(self._study)):
            if (driver := living_driver(self._home, self._study)) is not None:
                raise StudyError(f"study {self._study} is being driven by {driver}; stop it first")
            before = self.latest()
            if before is not None and before.alive:
                raise StudyError(
                    f"a driver of {self._study} is starting or ending (process {before.pid}); look again in a moment"
                )
            try:
                pid = self._spawn(
                    (*_PROGRAM, *command),
                    self._home.driver_output(self._study),
                    {"PLT_HOME": str(self._home.root), "PYTHONUNBUFFERED": "1"},
                )
                began = psutil.Process(pid).create_time()
            except (OSError, psutil.Error) as error:
                raise ServiceError(f"no driver of {self._study} could be started: {error}") from error
            launch = Launch(command=tuple(command), host=_host(), pid=pid, began=began)
            write_aside(self._home.launch(self._study), json.dumps(asdict(launch)))
            return launch

    def latest(self) -> Launch | None:
        """The one that was started last, or None."""
        try:
            plain = json.loads(self._home.launch(self._study).read_text(encoding="utf-8"))
            return Launch(**{**plain, "command": tuple(plain["command"])})
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def output(self, lines: int = 200) -> list[str]:
        """The last lines that it printed, without the secrets of addresses."""
        try:
            with self._home.driver_output(self._study).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
                text = file.read().decode("utf-8", errors="replace")
        except OSError:
            return []
        return [without_secrets(line) for line in text.splitlines()[-lines:]]


def spawn_detached(arguments: Sequence[str], output: Path, environment: Mapping[str, str]) -> int:
    """Start a process in a session of its own, so that no signal to this one or its terminal reaches it."""
    with output.open("wb") as log:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **environment},
        )
    Thread(target=process.wait, daemon=True, name=f"reaper-{process.pid}").start()  # leaves no zombie behind
    return process.pid


def _host() -> str:
    return process_name().partition(":")[0]
