"""A trial whose machine is lost goes on elsewhere from what the store holds, and the store may go away meanwhile."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from trials import Unbroken, attempt, countdown, exact, files, make_trial, run, same, weights

from workers import stored_copies
from workers.attempt_folder import AttemptFolder
from workers.protocol import TrialRequest


@pytest.fixture(autouse=True)
def own_device_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no benchmark that this user runs beside the tests."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def trial(tmp_path: Path) -> TrialRequest:
    (tmp_path / "store").mkdir()
    return replace(make_trial(tmp_path), store=f"file://{tmp_path}/store")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    """Reports, outcome and weights of the trial when nothing happens to it."""
    folder = tmp_path_factory.mktemp("unbroken")
    reports, outcome = run(make_trial(folder))
    assert outcome is not None
    return reports, outcome, weights(AttemptFolder(folder / "attempt-1").model)


def elsewhere(request: TrialRequest, host: str) -> TrialRequest:
    """The same attempt on a machine that has nothing of the earlier ones."""
    there = Path(request.folder).parent / host
    earlier = tuple(str(there / Path(folder).name) for folder in request.resume_from)
    return replace(request, folder=str(there / Path(request.folder).name), resume_from=earlier)


def stored(trial: TrialRequest) -> set[str]:
    """Whole sets in the store, without the names of steps."""
    assert trial.store is not None
    root = Path(trial.store.removeprefix("file://"))
    return {str(path.parent.parent.relative_to(root)) for path in root.rglob("whole.json")}


@pytest.mark.parametrize("protocol", ["file", "memory"])
def test_on_another_machine_it_goes_on_from_the_store_and_ends_as_an_unbroken_one(
    trial: TrialRequest, unbroken: Unbroken, tmp_path: Path, protocol: str
) -> None:
    expected, whole, model = unbroken
    place = {"file": f"file://{tmp_path}/store", "memory": f"memory://{tmp_path.name}/{protocol}"}[protocol]
    trial = replace(trial, store=place)
    run(trial, countdown(10))
    second = elsewhere(attempt(trial, 2), "b")
    run(second, countdown(7))
    third = elsewhere(attempt(trial, 3), "c")
    reports, outcome = run(third)
    assert outcome is not None
    assert outcome.failure is None
    assert outcome.info["resumed"]["from"] == "attempt-2"
    assert outcome.info["resumed"]["step"] > 10
    assert "store" not in outcome.info
    assert {step: exact(each.metrics) for step, each in reports.items()} == {
        step: exact(each.metrics) for step, each in expected.items()
    }
    assert exact(outcome.metrics) == exact(whole.metrics)
    assert same(weights(AttemptFolder(third.folder).model), model)


def test_the_store_holds_what_a_later_attempt_needs_and_no_more(trial: TrialRequest) -> None:
    worst_last = replace(trial, best_by=("val/loss", "maximize"))  # so the first evaluation wins
    run(worst_last, countdown(12))
    assert stored(trial) == {"attempt-1/state", "attempt-1/best"}
    second = elsewhere(attempt(worst_last, 2), "b")
    run(second, countdown(6))
    assert stored(trial) == {"attempt-2/state", "attempt-2/best"}
    third = elsewhere(attempt(worst_last, 3), "c")
    _, outcome = run(third)
    assert outcome is not None
    assert stored(trial) == {"attempt-3/best", "attempt-3/checkpoint"}
    assert files(third.folder) == {"best", "checkpoint"}
    assert not list(Path(third.folder).parent.glob("attempt-[12]/*/*"))


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_copies, "WAITS", (0.0,))


@pytest.mark.usefixtures("no_waiting")
def test_while_the_store_is_away_it_trains_on_and_says_so(
    trial: TrialRequest, unbroken: Unbroken, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, whole, _ = unbroken
    store = tmp_path / "store"
    store.rmdir()
    store.write_text("where the store was")  # nothing can be written below a file
    _, outcome = run(trial)
    assert outcome is not None
    assert outcome.failure is None
    assert exact(outcome.metrics) == exact(whole.metrics)
    assert outcome.info["store"].startswith(f"checkpoint not stored: file://{store} cannot be used: NotADirectoryError")
    printed = capsys.readouterr().out
    assert "state not stored: " in printed
    assert "trying again in 0 s" in printed


def test_what_could_not_be_stored_is_stored_once_the_store_is_back(trial: TrialRequest, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.rmdir()
    store.write_text("where the store was")
    steps = [0]

    def store_returns() -> None:
        steps[0] += 1
        if steps[0] == 8:
            store.unlink()

    run(replace(trial, best_by=("val/loss", "maximize")), countdown(9, store_returns))
    assert stored(trial) == set()  # tried again at the next checkpoint, not before
    shutil.rmtree(tmp_path / "attempt-1")
    store.write_text("away")
    steps[0] = 0
    run(replace(trial, best_by=("val/loss", "maximize")), countdown(14, store_returns))
    assert stored(trial) == {"attempt-1/state", "attempt-1/best"}


def newest(trial: TrialRequest, name: str) -> Path:
    assert trial.store is not None
    return max(Path(trial.store.removeprefix("file://")).glob(f"attempt-1/state/*/{name}"))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "half a set": lambda state: (state / "optimizer.safetensors").unlink(),
    "a file cut": lambda state: (state / "optimizer.safetensors").write_bytes(b"cut"),
    "a file of equal size": lambda state: (state / "trainer.json").write_bytes(
        b" " * (state / "trainer.json").stat().st_size
    ),
    "not whole yet": lambda state: (state / "whole.json").unlink(),
    "marker cut": lambda state: (state / "whole.json").write_text((state / "whole.json").read_text()[:-3]),
    "marker leads out": lambda state: (state / "whole.json").write_text(
        (state / "whole.json").read_text().replace("trainer.json", "../../../../trainer.json")
    ),
    "marker names a root": lambda state: (state / "whole.json").write_text(
        (state / "whole.json").read_text().replace("trainer.json", "/etc/passwd")
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_not_whole_in_the_store_is_skipped_and_said(
    trial: TrialRequest, unbroken: Unbroken, damage: str, tmp_path: Path
) -> None:
    _, whole, _ = unbroken
    run(trial, countdown(12))
    DAMAGES[damage](newest(trial, "whole.json").parent)
    before = {path for path in tmp_path.rglob("*") if "attempt" not in str(path) and "b/" not in str(path)}
    second = elsewhere(attempt(trial, 2), "b")
    _, outcome = run(second)
    assert outcome is not None
    assert "resumed" not in outcome.info
    (said,) = outcome.info["skipped_states"]
    assert "\n" not in said
    assert exact(outcome.metrics) == exact(whole.metrics)
    after = {path for path in tmp_path.rglob("*") if "attempt" not in str(path) and "b/" not in str(path)}
    assert after - before <= {tmp_path / "b"}


def test_the_newest_state_of_a_plain_name_is_fetched_and_no_other(
    trial: TrialRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    run(trial, countdown(12))
    state = newest(trial, "whole.json").parent
    for name in ("step-000000001", "step-999999999-x", "..step", "step-99999999", "best"):
        shutil.copytree(state, state.with_name(name))
    _, outcome = run(elsewhere(attempt(trial, 2), "b"))
    assert outcome is not None
    assert outcome.info["resumed"]["step"] == int(state.name.removeprefix("step-"))
    fetched = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("fetched ")]
    assert [name for name in fetched if "/state/" in name] == [f"attempt-1/state/{state.name}"]


def test_a_damaged_state_of_this_machine_is_taken_from_the_store(trial: TrialRequest) -> None:
    run(trial, countdown(12))
    (state,) = AttemptFolder(trial.folder).states()
    (state / "trainer.json").write_text("{}")
    _, outcome = run(attempt(trial, 2))
    assert outcome is not None
    assert outcome.info["resumed"]["step"] == int(state.name.removeprefix("step-"))
    assert len(outcome.info["skipped_states"]) == 1


def test_a_file_says_what_is_whole(trial: TrialRequest) -> None:
    run(trial, countdown(12))
    whole = json.loads(newest(trial, "whole.json").read_text())
    assert whole["format"] == "plt-stored/1"
    assert set(whole["files"]) == {
        "model/config.json",
        "model/model.safetensors",
        "optimizer.safetensors",
        "random.safetensors",
        "trainer.json",
    }
