"""What a submitted study brings along, and how its environment is compared."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from orchestrator import shipment as shipments
from orchestrator.errors import ServiceError
from orchestrator.main import main
from orchestrator.shipment import VERSIONS, differences, requirements, shipment, versions


def test_it_is_the_code_and_the_study_file_and_runs_without_this_checkout(tmp_path: Path) -> None:
    study = tmp_path / "any-name.yaml"
    study.write_text("name: x\n", encoding="utf-8")
    with shipment(study) as folder:
        assert sorted(path.name for path in folder.iterdir()) == ["dashboard", "orchestrator", "study.yaml", "workers"]
        assert not [path for path in folder.rglob("*") if path.name.startswith((".", "__pycache__"))]
        code = "import orchestrator, workers; print(orchestrator.__file__)"
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(folder / "orchestrator" / "__init__.py")
    assert not folder.exists()


def test_one_that_is_too_large_is_refused_with_its_largest_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipments, "_MOST_BYTES", 1000)
    with (
        pytest.raises(ServiceError, match=r"the largest files are \w+/.* MiB\).*: move data out of the packages"),
        shipment(),
    ):
        pass


def test_the_environment_is_pinned_to_what_is_installed_here() -> None:
    assert f"torch=={version('torch')}" in requirements()
    assert not any(line.startswith("python==") for line in requirements())
    assert versions()["ray"] == version("ray")


def test_other_versions_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert differences({}) == []
    assert differences({VERSIONS: json.dumps(versions())}) == []
    wanted = {**versions(), "torch": "1.0", "no-such-package": "3"}
    found = [f"torch {version('torch')} here, 1.0 there", "no-such-package not installed here, 3 there"]
    assert differences({VERSIONS: json.dumps(wanted)}) == found
    monkeypatch.setenv(VERSIONS, json.dumps(wanted))
    assert main(["list"]) == 2
    line = capsys.readouterr().err
    assert "; ".join(found) in line
    assert "plt submit --install" in line
