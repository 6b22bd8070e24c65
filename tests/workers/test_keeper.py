"""What is left of a trial's attempts, and that a full disk stops nobody."""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from trials import BATCH, STEPS, Unbroken, attempt, countdown, exact, files, make_trial, run, weights

from workers.attempt_folder import AttemptFolder
from workers.evaluation.accuracy import evaluate
from workers.models import load_pretrained
from workers.protocol import TrialRequest


@pytest.fixture(autouse=True)
def own_device_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no benchmark that this user runs beside the tests."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def trial(tmp_path: Path) -> TrialRequest:
    return make_trial(tmp_path)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    """Reports, outcome and weights of the trial when nothing happens to it."""
    folder = tmp_path_factory.mktemp("unbroken")
    reports, outcome = run(make_trial(folder))
    assert outcome is not None
    assert outcome.failure is None
    return reports, outcome, weights(AttemptFolder(folder / "attempt-1").model)


def test_after_success_only_the_final_model_and_the_best_are_left(trial: TrialRequest) -> None:
    run(trial, countdown(19))
    assert files(trial.folder) == {"state", "best"}
    assert len(AttemptFolder(trial.folder).states()) == 1
    reports, outcome = run(attempt(trial, 2))
    assert outcome is not None
    values = {step: each.metrics["val/loss"] for step, each in reports.items() if "val/loss" in each.metrics}
    assert min(values, key=values.__getitem__) == STEPS  # this trial learns to the end
    assert files(trial.folder) == set()
    assert files(attempt(trial, 2).folder) == {"checkpoint"}


def test_the_best_model_is_kept_over_attempts_where_it_is_not_the_last(trial: TrialRequest) -> None:
    worst_last = replace(trial, best_by=("val/loss", "maximize"))  # so the first evaluation wins
    reports, outcome = run(worst_last, countdown(10))
    assert outcome is None
    first = next(step for step, report in reports.items() if "val/loss" in report.metrics)
    later, outcome = run(attempt(worst_last, 2))
    assert outcome is not None
    assert all(
        report.metrics["val/loss"] < reports[first].metrics["val/loss"]
        for step, report in later.items()
        if "val/loss" in report.metrics and step != first
    )
    folder = AttemptFolder(attempt(worst_last, 2).folder)
    assert files(folder.path) == {"checkpoint", "best"}
    from workers.data import prepare

    data = prepare(trial.data, Path(trial.data_folder)).evaluation_set()
    assert evaluate(load_pretrained(folder.best), data, BATCH)["val/loss"] == reports[first].metrics["val/loss"]
    assert not AttemptFolder(trial.folder).best.exists()


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Files larger than so many bytes cannot be written meanwhile: what a quota does, for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_stops_neither_training_nor_the_outcome(
    trial: TrialRequest, unbroken: Unbroken, capsys: pytest.CaptureFixture[str]
) -> None:
    _, whole, _ = unbroken
    with full_disk(500):
        _, outcome = run(trial)
    assert outcome is not None
    assert outcome.failure is None
    assert exact(outcome.metrics) == exact(whole.metrics)
    printed = capsys.readouterr().out
    for what in ("state", "best", "checkpoint"):
        assert outcome.info[what].startswith("not saved: ")
        assert "too large" in outcome.info[what]
        assert f"{what} {outcome.info[what]}\n" in printed
    assert files(trial.folder) == set()


def test_the_final_model_is_saved_in_the_room_that_the_state_took(trial: TrialRequest, tmp_path: Path) -> None:
    """On a file system of its own, which has room for the state or the model but not for both."""
    run(replace(trial, folder=str(tmp_path / "sizes"), best_by=None), countdown(12))
    files_of_state = [path for path in (tmp_path / "sizes").rglob("*") if path.is_file()]
    pages = sum(-(-path.stat().st_size // 4096) for path in files_of_state)
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={(pages + 2) * 4096}", "tmpfs", str(mount)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        _, outcome = run(replace(trial, folder=str(mount / "attempt-1"), best_by=None))
        assert outcome is not None
        assert "No space left" in outcome.info["state"]
        assert "checkpoint" not in outcome.info
        assert files(mount / "attempt-1") == {"checkpoint"}
    finally:
        subprocess.run(["umount", str(mount)], check=True)
