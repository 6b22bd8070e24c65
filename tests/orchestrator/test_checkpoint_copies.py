"""A study whose checkpoints lie in a real S3 store: machines are lost with their disks, and the store is killed."""

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.backends.backend import Backend
from orchestrator.backends.local_backend import LocalBackend
from orchestrator.checkpoint_copies import discarding, require_usable
from orchestrator.doctor import Check, checkpoints
from orchestrator.errors import ServiceError
from orchestrator.home import Home
from orchestrator.listener import Listener, Silence
from orchestrator.model_source import find_model
from orchestrator.records import StudyRecord, TrialRecord, TrialState
from orchestrator.runner import Runner
from orchestrator.spec import StudySpec
from orchestrator.study import Study
from orchestrator.tracking.memory_tracker import MemoryTracker
from tests.orchestrator import lost_machines
from tests.orchestrator.seaweed import BUCKET, SECRET, Store
from workers.checkpoint_store import CheckpointStore

WALL_CLOCK = {"train/seconds", "train/tokens_per_second"}


def study(name: str) -> StudySpec:
    return StudySpec.from_plain(
        {
            "name": name,
            "model": {"variant": "plt", "d_model": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 2, "window": 8},
            "data": {"corpus": "phop", "seq_len": 32, "eval_sequences": 16},
            "train": {"tokens": 12_288, "batch_size": 8, "precision": "float32", "compile": "off", "evaluations": 4},
            "search": {"lr": {"choices": [1e-3, 3e-3, 1e-2]}},
            "objectives": [{"metric": "val/loss", "direction": "minimize"}],
            "sampler": {"name": "grid"},
            "budget": {"configurations": 3},
            "resources": {"train": {"cpus": 1, "gpus": 0}},
        }
    )


def driven(
    name: str, backend: Backend, home: Home, listener: Listener, should_stop: Callable[[], bool] = lambda: False
) -> StudyRecord:
    spec = study(name)
    try:
        with (
            Study.open(spec, home) as opened,
            discarding(home, name, [], listener.notice) as discard_stored,
        ):
            return Runner(
                spec=spec,
                study=opened,
                backend=backend,
                tracker=MemoryTracker(name),
                home=home,
                clock=time.monotonic,
                listener=listener,
                should_stop=should_stop,
                discard_stored=discard_stored,
            ).run()
    finally:
        backend.close()


def numbers(record: StudyRecord) -> dict[Any, Mapping[str, float]]:
    """Final metrics by learning rate, without times."""
    return {
        trial.params["lr"]: {name: value for name, value in trial.metrics.items() if name not in WALL_CLOCK}
        for trial in record.trials
    }


class Outage(Silence):
    """Kills the store when the trial that lost a machine has ended; starts it again once a worker has missed it."""

    def __init__(self, store: Store, home: Home) -> None:
        self._store, self._home, self.notices = store, home, list[str]()
        self.phase = "before"

    def trial_ended(self, trial: TrialRecord) -> None:
        if trial.number == 1:
            self._store.kill()
            self.phase = "away"
            lost_machines.store_is_away(self._home.study("broken")).touch()

    def look(self) -> bool:
        """Called between events; never asks to stop."""
        outputs = self._home.studies.glob("*/trials/*/attempt-*/output.log")
        if self.phase == "away" and any("stored: s3://" in path.read_text(encoding="utf-8") for path in outputs):
            self._store.start()
            self.phase = "back"
        return False

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.mark.slow
def test_neither_lost_machines_nor_an_outage_of_the_store_lose_anything(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray
    from ray import cloudpickle

    from orchestrator.backends.ray_backend import RayBackend

    home = Home(tmp_path / "home")
    monkeypatch.setenv("PLT_CHECKPOINTS", f"s3://{BUCKET}/checkpoints")
    outage = Outage(store, home)
    cloudpickle.register_pickle_by_value(lost_machines)
    ray.shutdown()  # a cluster that other tests began does not know the store's keys
    backend = RayBackend(execute=lost_machines.first_machine_is_lost)
    broken = driven("broken", backend, home, outage, outage.look)
    assert outage.phase == "back"
    with pytest.MonkeyPatch.context() as unset:
        unset.delenv("PLT_CHECKPOINTS")
        unbroken = driven("unbroken", LocalBackend(), Home(tmp_path / "other"), Silence())
    assert [trial.state for trial in broken.trials] == [TrialState.COMPLETE] * 3
    assert numbers(broken) == numbers(unbroken)
    resumed = next(trial for trial in broken.trials if trial.number == 1)
    assert [attempt.failure and attempt.failure["reason"] for attempt in resumed.attempts] == ["worker_lost", None]
    assert resumed.attempts[-1].info["resumed"]["from"] == "attempt-1"
    assert resumed.attempts[-1].info["resumed"]["step"] > 0
    for trial in broken.trials:
        assert "store" not in trial.attempts[-1].info
    assert not [path for path in home.root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert outage.notices == []
    assert "checkpoint" in kinds_in_the_store() <= {"checkpoint", "best"}
    folder = home.attempt("broken", 1, 2)
    shutil.rmtree(folder)
    assert (find_model(home, "broken/1").folder / "model.safetensors").is_file()


def test_doctor_and_the_start_of_a_study_prove_that_the_store_can_be_used(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    monkeypatch.setenv("PLT_CHECKPOINTS", f"s3://{BUCKET}/checkpoints")
    assert require_usable(home) == f"s3://{BUCKET}/checkpoints"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
    with pytest.raises(ServiceError, match="unset PLT_CHECKPOINTS") as refused:
        require_usable(home)
    assert "a-wrong-secret" not in str(refused.value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    store.kill()
    with pytest.raises(ServiceError, match="cannot be used: EndpointConnectionError"):
        require_usable(home)
    store.start()
    assert require_usable(home) is not None


def test_doctor_says_where_checkpoints_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLT_CHECKPOINTS", raising=False)
    assert checkpoints(Home(tmp_path)) == Check(name="checkpoints", ok=True, detail="in PLT_HOME only")
    monkeypatch.setenv("PLT_CHECKPOINTS", f"file://{tmp_path}/store")
    assert checkpoints(Home(tmp_path)).ok
    assert not list((tmp_path / "store").rglob("*.*"))
    (tmp_path / "file").touch()
    monkeypatch.setenv("PLT_CHECKPOINTS", f"file://{tmp_path}/file")
    refused = checkpoints(Home(tmp_path))
    assert not refused.ok
    assert "unset PLT_CHECKPOINTS" in refused.detail


def planted(folder: Path, *names: str) -> None:
    """Put sets into the store of study `small`."""
    store = CheckpointStore(f"file://{folder}/store/small/trials")
    for name in names:
        (folder / "set").mkdir(exist_ok=True)
        (folder / "set" / "file").write_text("text", encoding="utf-8")
        store.put(folder / "set", name)


def left(folder: Path) -> set[str]:
    root = folder / "store" / "small" / "trials"
    return {str(path.parent.relative_to(root)) for path in root.rglob("whole.json")}


STEP = "step-000000004"
MODELS = {f"0/attempt-1/best/{STEP}", f"0/attempt-2/checkpoint/{STEP}"}


def test_states_of_finished_trials_are_deleted_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLT_CHECKPOINTS", f"file://{tmp_path}/store")
    states = {f"{trial}/attempt-{attempt}/state/{STEP}" for trial, attempt in ((0, 1), (0, 2), (1, 1), (2, 1), (12, 1))}
    planted(tmp_path, *states, *MODELS)
    notices: list[str] = []
    with discarding(Home(tmp_path), "small", [0, 7], notices.append) as discard:
        discard(2)
    assert left(tmp_path) == MODELS | {f"1/attempt-1/state/{STEP}", f"12/attempt-1/state/{STEP}"}
    assert notices == []


def test_what_cannot_be_deleted_is_said_and_deleted_by_the_next_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLT_CHECKPOINTS", f"file://{tmp_path}/store")
    planted(tmp_path, f"1/attempt-1/state/{STEP}", *MODELS)
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").touch()
    notices: list[str] = []
    with discarding(Home(tmp_path), "small", [], notices.append) as discard:
        discard(1)
    (notice,) = notices
    assert "the next driver of the study deletes them" in notice
    (tmp_path / "store").unlink()
    (tmp_path / "away").rename(tmp_path / "store")
    with discarding(Home(tmp_path), "small", [1], notices.append):
        pass
    assert left(tmp_path) == MODELS
    assert len(notices) == 1


def kinds_in_the_store() -> set[str]:
    import s3fs

    found = s3fs.S3FileSystem(skip_instance_cache=True).find(f"{BUCKET}/checkpoints/broken/trials")
    return {path.split("/")[6] for path in found}
