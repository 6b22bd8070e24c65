"""Latencies of different types of device never stand in one front without its being said."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.backends.local_backend import LocalBackend
from orchestrator.home import Home
from orchestrator.latency_devices import device_text, mixed_devices
from orchestrator.listener import Silence
from orchestrator.main import main
from orchestrator.recommendation import recommend
from orchestrator.runner import Runner
from orchestrator.spec import StudySpec
from orchestrator.studies import read_study
from orchestrator.study import Study
from orchestrator.tables import print_study
from orchestrator.tracking.memory_tracker import MemoryTracker
from workers.protocol import BenchmarkRequest, Request, ShouldStop, TrialOutcome

H100, L4 = ({"kind": "cuda", "device": name, "cores": 8, "torch": "2"} for name in ("H100", "L4"))


class Notices(Silence):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def notice(self, text: str) -> None:
        self.texts.append(text)


def drive(root: Path, devices: dict[int, dict[str, Any]]) -> list[str]:
    """Run a study of three loop counts, each measured on a device; what was said on the way."""

    def work(request: Request, _: ShouldStop) -> Any:
        loops = request.model.num_loops
        if isinstance(request, BenchmarkRequest):
            yield TrialOutcome(metrics={"decode/ms_per_token": 10.0 + loops}, info={"hardware": devices[loops]})
        else:
            yield TrialOutcome(metrics={"val/bits_per_byte": 3.0 - loops}, info={"hardware": L4})

    spec = StudySpec.from_plain(
        {
            "name": "devices",
            "model": {"variant": "loop", "d_model": 16, "num_layers": 1, "num_heads": 2},
            "data": {"seq_len": 64},
            "train": {"tokens": 1000, "batch_size": 2},
            "search": {"num_loops": {"choices": [1, 2, 3]}},
            "objectives": [
                {"metric": "val/bits_per_byte", "direction": "minimize"},
                {"metric": "decode/ms_per_token", "direction": "minimize"},
            ],
            "budget": {"configurations": 3},
            "benchmark": {"context": 32, "generate": 4},
        }
    )
    home, heard = Home(root), Notices()
    with Study.open(spec, home) as study:
        Runner(
            spec=spec,
            study=study,
            backend=LocalBackend(execute=work, hardware=lambda: H100),
            tracker=MemoryTracker(spec.name),
            home=home,
            clock=lambda: 0.0,
            listener=heard,
        ).run()
    return heard.texts


def test_two_types_in_one_front_are_said_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = drive(tmp_path, {1: H100, 2: L4, 3: H100})
    assert said == [
        "a latency was measured on L4, others on H100: they do not compare; "
        "name one with resources.benchmark.accelerator"
    ]
    study = read_study(Home(tmp_path), "devices")
    mixed = mixed_devices(study)
    assert mixed is not None
    assert "2 types of device" in mixed
    assert "L4 (trials 1)" in mixed
    console = Console(record=True, width=400)
    print_study(console, study)
    assert mixed in " ".join(console.export_text().split())
    capsys.readouterr()
    assert mixed in recommend(study).caveats
    monkeypatch.setenv("PLT_HOME", str(tmp_path))
    assert main(["status", "devices", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["latency_devices"] == {"H100": [0, 2], "L4": [1]}


def test_one_type_needs_no_word(tmp_path: Path) -> None:
    assert drive(tmp_path, {1: H100, 2: H100, 3: {**H100, "cores": 64}}) == []
    assert mixed_devices(read_study(Home(tmp_path), "devices")) is None


def test_cpus_of_one_name_differ_by_their_cores() -> None:
    assert device_text({"kind": "cpu", "device": "Xeon", "cores": 8}) == "Xeon, 8 cores"
    assert device_text({"device": "made up"}) == "made up"
