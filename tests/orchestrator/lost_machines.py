"""A worker whose machine is lost with its disk; importable, so that actors can run it."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from workers.execution import execute
from workers.protocol import MetricReport, Request, ShouldStop, TrialOutcome, TrialRequest


def first_machine_is_lost(request: Request, should_stop: ShouldStop) -> Iterator[MetricReport | TrialOutcome]:
    """Trial 1 loses its first machine before step 20: nothing of the attempt is left but what it stored.

    Trial 2 begins when the store is away.
    """
    assert isinstance(request, TrialRequest)
    if request.attempt_id == "trial-2-attempt-1":
        _wait_for(store_is_away(Path(request.folder).parents[2]))
    left = [20]

    def stop_or_die() -> bool:
        left[0] -= 1
        if left[0] < 0:
            shutil.rmtree(request.folder)
            os.kill(os.getpid(), signal.SIGKILL)
        return should_stop()

    yield from execute(request, stop_or_die if request.attempt_id == "trial-1-attempt-1" else should_stop)


def store_is_away(study: Path) -> Path:
    """The file that says so, in the study's folder."""
    return study / "store-is-away"


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + 120
    while not file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{file} does not appear")
        time.sleep(0.05)
