"""A worker whose machine is lost with its disk; importable, so that actors can run it."""

import os
import shutil
import signal
from collections.abc import Iterator

from workers.execution import execute
from workers.protocol import MetricReport, Request, ShouldStop, TrialOutcome, TrialRequest


def first_machine_is_lost(request: Request, should_stop: ShouldStop) -> Iterator[MetricReport | TrialOutcome]:
    """Trial 1 loses its first machine before step 20: nothing of the attempt is left but what it stored."""
    left = [20]

    def stop_or_die() -> bool:
        left[0] -= 1
        if left[0] < 0:
            assert isinstance(request, TrialRequest)
            shutil.rmtree(request.folder)
            os.kill(os.getpid(), signal.SIGKILL)
        return should_stop()

    return execute(request, stop_or_die if request.attempt_id == "trial-1-attempt-1" else should_stop)
