"""What a Ray actor runs: one request after another in a process that stays warm.

A plain class: `orchestrator.backends.ray_worker` turns it into an actor, with `run` in one thread and `stop` and `ping`
in others, so that they are answered while `run` works. Torch is imported when the first request comes, not when the
class is unpickled. SIGTERM, by which a batch system or a container says that the machine is being taken away, has the
attempt that runs save a state and leave; without one it ends the process as before.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

from workers.output import captured
from workers.protocol import Ask, Execute, MetricReport, Request, TrialOutcome


class Worker:
    """Executes requests and streams back what they report."""

    def __init__(self, execute: Execute | None = None, hardware: Callable[[], dict[str, Any]] | None = None) -> None:
        self._execute = execute
        self._hardware = hardware
        self._running: str | None = None
        self._stopped: str | None = None
        self._leaving: str | None = None
        self._before = signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._terminated)

    def run(self, request: Request) -> Iterator[MetricReport | TrialOutcome]:
        """Reports, then the outcome; no outcome if the attempt was stopped."""
        if self._execute is None:
            from workers.execution import execute

            self._execute = execute
        self._running = request.attempt_id
        stream = self._execute(request, lambda: self._asked(request.attempt_id))
        try:
            with closing(captured(stream, request)) as items:
                for item in items:  # noqa: UP028 - Ray drives this by `send`
                    yield item
        finally:
            self._running = None

    def stop(self, attempt_id: str) -> None:
        """Have an attempt end as soon as it can, now or as soon as it begins."""
        self._stopped = attempt_id

    def leave(self, attempt_id: str) -> None:
        """Have an attempt save a state and end before its next step: the machine is being taken away."""
        self._leaving = attempt_id

    def _asked(self, attempt_id: str) -> Ask:
        if self._stopped == attempt_id:
            return Ask.STOP
        return Ask.LEAVE if self._leaving == attempt_id else Ask.GO_ON

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM; a second one ends the process whatever it does."""
        if self._running is not None and self._leaving != self._running:
            self._leaving = self._running
        elif callable(self._before):
            self._before(number, frame)
        else:
            sys.exit(1)

    def ping(self) -> dict[str, Any]:
        """A sign of life: what runs, and the memory that this process holds."""
        return {
            "attempt_id": self._running,
            "rss_bytes": _resident_bytes(),
            "device_bytes": _device_bytes(),
            "oom_kills": oom_kills(),
        }

    def hardware(self) -> dict[str, Any]:
        """What this process runs on."""
        if self._hardware is None:
            from workers.evaluation.hardware import hardware

            self._hardware = hardware
        return self._hardware()


def oom_kills() -> int:
    """Processes that the kernel has killed on this node, or in this container, for want of memory."""
    paths = ("/proc/vmstat", "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
    return sum(_counter(Path(path), "oom_kill") for path in paths)


def _counter(path: Path, name: str) -> int:
    """A number of a file of `name number` lines; 0 where this system has none."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(words[1]) for words in map(str.split, lines) if len(words) == 2 and words[0] == name)


def _resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0  # not Linux: growth is not watched
    return pages * os.sysconf("SC_PAGE_SIZE")


def _device_bytes() -> int:
    """What torch keeps of the GPU; nothing before a request has imported torch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return sum(torch.cuda.memory_reserved(index) for index in range(torch.cuda.device_count()))
