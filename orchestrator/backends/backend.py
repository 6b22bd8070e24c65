"""The seam to a place where attempts run.

A backend takes requests and gives back events. It never decides anything: what a failure means is the runner's
business. At most `slots` attempts run at once; a request submitted beyond that waits its turn, in order. Once an
attempt has ended or was stopped nothing more comes from it, whatever its process may still do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from workers.protocol import MetricReport, Request, TrialOutcome


@dataclass(frozen=True)
class AttemptReported:
    """An attempt sent metrics."""

    attempt_id: str
    report: MetricReport


@dataclass(frozen=True)
class AttemptEnded:
    """An attempt is over, one way or the other. Sent exactly once per submitted attempt that was not stopped."""

    attempt_id: str
    outcome: TrialOutcome


Event = AttemptReported | AttemptEnded


class Backend(Protocol):
    """Runs attempts."""

    name: str
    slots: int
    """How many attempts can run at once, at the moment: none while no machine is there that fits."""

    def hardware(self) -> Mapping[str, Any]:
        """What a worker runs on, as plain data: part of the identity of every latency that is measured there."""

    def submit(self, request: Request) -> None:
        """Accept an attempt; it starts when a slot is free."""

    def poll(self, timeout: float) -> list[Event]:
        """Events since the last call, in order; waits at most `timeout` seconds for the first."""

    def queued_because(self) -> str | None:
        """What submitted requests wait for, in one line for people; None when none waits."""

    def stop(self, attempt_id: str) -> None:
        """End an attempt and forget it: no more events come from it. Unknown or ended attempts are ignored.

        Its execution is asked to end by itself, so that it leaves nothing behind; until it has, its slot is taken.
        """

    def rest(self) -> None:
        """Let go of every device that no attempt uses; the next attempt takes one again."""

    def close(self) -> None:
        """End everything and free the devices."""
