"""Without Ray an attempt of several workers has them as processes of this machine, which end with it."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import gang_probes
import pytest
from trials import STEPS, exact, make_trial, run

from orchestrator.backends.backend import AttemptEnded, AttemptReported
from orchestrator.backends.local_backend import LocalBackend
from workers.protocol import Gang, TrialOutcome, TrialRequest


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrialRequest:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "attempt-1").mkdir()
    return replace(make_trial(tmp_path), gang=Gang(workers=2))


def ended(request: TrialRequest) -> tuple[list[int], TrialOutcome]:
    backend = LocalBackend()
    backend.submit(request)
    steps: list[int] = []
    while True:
        for event in backend.poll(0.0):
            if isinstance(event, AttemptEnded):
                return steps, event.outcome
            steps.append(event.report.step)


def test_two_processes_give_the_numbers_of_this_one_and_the_same_bits_every_time(
    trial: TrialRequest, tmp_path: Path
) -> None:
    _, alone = run(replace(trial, gang=None, folder=str(tmp_path / "alone")))
    assert alone is not None
    steps, once = ended(trial)
    assert max(steps) == STEPS
    assert once.failure is None, once.failure
    assert exact(once.metrics) == pytest.approx(exact(alone.metrics), rel=1e-6)
    _, again = ended(replace(trial, folder=str(tmp_path / "again")))
    assert exact(again.metrics) == exact(once.metrics)


def test_a_stopped_attempt_s_processes_end_by_themselves(trial: TrialRequest) -> None:
    backend, folder = LocalBackend(gang_probes.endless), Path(trial.folder)
    backend.submit(trial)
    while not all((folder / f"rank-{rank}.pid").exists() for rank in (0, 1)):
        (event,) = backend.poll(0.0)
        assert isinstance(event, AttemptReported)
    backend.stop(trial.attempt_id)
    assert all((folder / f"rank-{rank}.stopped").exists() for rank in (0, 1))
    for rank in (0, 1):
        with pytest.raises(ProcessLookupError):
            os.kill(int((folder / f"rank-{rank}.pid").read_text()), 0)
    assert backend.poll(0.0) == []
