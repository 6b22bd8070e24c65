"""`plt status` says why attempts wait, as long as a driver lives that would know."""

import json
from pathlib import Path

import pytest

from orchestrator.driver_lock import driver_lock
from orchestrator.home import Home
from orchestrator.live import LiveFile
from orchestrator.main import main
from orchestrator.spec import StudySpec
from orchestrator.study import Study

WHY = "1 waiting for 2 workers with 4 CPUs and 1 GPUs each to start; free: 8 CPUs, 1 GPUs"


def test_what_is_waited_for_is_said(
    tmp_path: Path, plain_study: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path)
    spec = StudySpec.from_plain(plain_study())  # type: ignore[operator]
    monkeypatch.setenv("PLT_HOME", str(tmp_path))
    with driver_lock(home, spec.name), Study.open(spec, home):
        live = LiveFile(home.live(spec.name), lambda: 0.0)
        live.queued(WHY)
        live.write(now=True)
        assert main(["status", spec.name]) == 0
        assert f"queued because: {WHY}" in capsys.readouterr().out.splitlines()
        assert main(["status", spec.name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["queued_because"] == WHY
    assert main(["status", spec.name]) == 0
    assert "queued because" not in capsys.readouterr().out
