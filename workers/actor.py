"""What a Ray actor runs: one request after another in a process that stays warm.

A plain class: `orchestrator.backends.ray_backend` turns it into an actor. Torch is imported when the first request
comes, not when the class is unpickled.
"""

from collections.abc import Callable, Iterator
from typing import Any

from workers.protocol import Execute, MetricReport, Request, TrialOutcome


class Worker:
    """Executes requests and streams back what they report."""

    def __init__(self, execute: Execute | None = None, hardware: Callable[[], dict[str, Any]] | None = None) -> None:
        self._execute = execute
        self._hardware = hardware

    def run(self, request: Request) -> Iterator[MetricReport | TrialOutcome]:
        """Reports, then the outcome."""
        if self._execute is None:
            from workers.execution import execute

            self._execute = execute
        yield from self._execute(request)

    def hardware(self) -> dict[str, Any]:
        """What this process runs on."""
        if self._hardware is None:
            from workers.evaluation.hardware import hardware

            self._hardware = hardware
        return self._hardware()
