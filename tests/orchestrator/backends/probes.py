"""Small workloads for backend tests; importable, so that actors can run them too."""

import os
import signal
from collections.abc import Iterator

from workers.protocol import Failure, FailureReason, MetricReport, Request, ShouldStop, TrialOutcome


def probe(request: Request, should_stop: ShouldStop) -> Iterator[MetricReport | TrialOutcome]:
    """Behave as the attempt id says."""
    del should_stop
    kind = request.attempt_id.partition("-")[0]
    for step in range(3):
        yield MetricReport(step=step, tokens=step * 10, metrics={"train/loss": 1.0 / (step + 1)}, seconds=float(step))
        if kind == "raise":
            raise ValueError("a probe that raises")
        if kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
    if kind == "mute":
        return
    if kind == "fail":
        yield TrialOutcome(failure=Failure(reason=FailureReason.DIVERGED, message="loss is nan"))
        return
    yield TrialOutcome(metrics={"pid": float(os.getpid())}, info={"id": request.attempt_id}, seconds=1.0)


def probe_hardware() -> dict[str, object]:
    """A made-up device."""
    return {"device": "probe"}
