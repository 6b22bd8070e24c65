"""One contract for every backend."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from probes import probe, probe_hardware

from orchestrator.backends.backend import AttemptEnded, AttemptReported, Backend
from orchestrator.backends.local_backend import LocalBackend
from orchestrator.backends.placement import Placement
from workers.attempt_folder import AttemptFolder
from workers.protocol import BenchmarkRequest, FailureReason, TrialOutcome, TrialRequest

MakeRequest = Callable[[str], BenchmarkRequest]
MakeTrial = Callable[[str, Path], TrialRequest]
Drain = Callable[[Backend, set[str]], tuple[dict[str, list[int]], dict[str, TrialOutcome]]]


@pytest.fixture(scope="module")
def ray_backend(ray_cluster: None) -> Iterator[Backend]:
    from orchestrator.backends.ray_backend import RayBackend

    del ray_cluster
    backend = RayBackend(train=Placement(cpus=2.5, gpus=0), execute=probe, hardware=probe_hardware)
    yield backend
    backend.close()


@pytest.fixture(params=["local", "ray"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "ray":
        yield request.getfixturevalue("ray_backend")
        return
    local = LocalBackend(execute=probe, hardware=probe_hardware)
    yield local
    local.close()


def test_more_attempts_than_slots_all_report_in_order_and_end_once(
    backend: Backend, make_request: MakeRequest, drain: Drain
) -> None:
    ids = {f"ok-{index}" for index in range(2 * backend.slots + 1)}
    for attempt_id in sorted(ids):
        backend.submit(make_request(attempt_id))
    steps, ended = drain(backend, ids)
    assert all(seen == [0, 1, 2] for seen in steps.values())
    assert {outcome.info["id"] for outcome in ended.values()} == ids
    assert backend.poll(0.0) == []


@pytest.mark.parametrize(
    ("kind", "reason", "words"),
    [
        ("raise", FailureReason.EXCEPTION, "ValueError: a probe that raises"),
        ("mute", FailureReason.EXCEPTION, "without an outcome"),
        ("fail", FailureReason.DIVERGED, "loss is nan"),
    ],
)
def test_a_failure_is_an_outcome_and_the_backend_goes_on(
    backend: Backend, kind: str, reason: FailureReason, words: str, make_request: MakeRequest, drain: Drain
) -> None:
    backend.submit(make_request(f"{kind}-1"))
    backend.submit(make_request("ok-after"))
    _, ended = drain(backend, {f"{kind}-1", "ok-after"})
    failure = ended[f"{kind}-1"].failure
    assert failure is not None
    assert failure.reason is reason
    assert words in failure.message
    assert ended["ok-after"].failure is None


def test_a_stopped_attempt_is_never_heard_of_again(backend: Backend, make_request: MakeRequest, tmp_path: Path) -> None:
    ids = [f"endless-{index}@{tmp_path}/{index}" for index in range(backend.slots + 1)]
    for attempt_id in ids:
        backend.submit(make_request(attempt_id))
    first = backend.poll(30.0)
    assert first
    for attempt_id in ids:
        backend.stop(attempt_id)
        backend.stop(attempt_id)
    backend.stop("unknown")
    backend.submit(make_request("ok-last"))
    ended: set[str] = set()
    while ended != {"ok-last"}:
        for event in backend.poll(5.0):
            assert event.attempt_id == "ok-last"
            if isinstance(event, AttemptEnded):
                ended.add(event.attempt_id)


def test_a_stopped_attempt_ends_cleanly(backend: Backend, make_request: MakeRequest, tmp_path: Path) -> None:
    backend.submit(make_request(f"endless-1@{tmp_path}/left"))
    assert backend.poll(30.0)
    backend.stop(f"endless-1@{tmp_path}/left")
    while not (tmp_path / "left").exists():
        assert backend.poll(5.0) == []


def test_what_waits_is_said(backend: Backend, make_request: MakeRequest, tmp_path: Path) -> None:
    assert backend.queued_because() is None
    ids = [f"endless-{index}@{tmp_path}/{index}" for index in range(backend.slots + 2)]
    for attempt_id in ids:
        backend.submit(make_request(attempt_id))
    reported: set[str] = set()
    while len(reported) < backend.slots:
        reported |= {event.attempt_id for event in backend.poll(5.0)}
    why = backend.queued_because()
    assert why is not None
    assert why.startswith("2 waiting for")
    assert "\n" not in why
    for attempt_id in ids:
        backend.stop(attempt_id)
    assert backend.queued_because() is None


def test_the_output_of_an_attempt_is_in_its_folder_and_nowhere_else(
    backend: Backend, make_trial: MakeTrial, drain: Drain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backend.submit(make_trial("talk-1", tmp_path / "one"))
    seen: list[Any] = []
    while not seen:
        seen = backend.poll(5.0)
    assert isinstance(seen[0], AttemptReported)
    print("the driver's own")
    logging.getLogger("driver").error("the driver's own too")
    drain(backend, {"talk-1"})
    lines = AttemptFolder(tmp_path / "one").output.read_text().splitlines()
    assert lines[:2] == ["printed to stdout", "printed to stderr"]
    assert lines[2].startswith("step 1 of 6, tokens 10, train/loss 0.5, ")
    assert "WARNING probe: logged" in lines[3]
    assert backend.name == "local" or "UserWarning: warned" in lines[4]  # pytest keeps this process's warnings
    assert lines[-1] == "ended after 1.0 s"
    assert not any("driver" in line for line in lines)
    printed = capsys.readouterr()
    assert "the driver's own" in printed.out
    assert "printed" not in printed.out + printed.err


def test_the_traceback_of_a_failure_is_in_the_output(
    backend: Backend, make_trial: MakeTrial, drain: Drain, tmp_path: Path
) -> None:
    backend.submit(make_trial("raise-1", tmp_path))
    drain(backend, {"raise-1"})
    output = AttemptFolder(tmp_path).output.read_text()
    assert "Traceback" in output
    assert output.endswith("ValueError: a probe that raises\n")


def test_hardware_is_asked_of_a_worker(backend: Backend) -> None:
    assert backend.hardware() == {"device": "probe"}
