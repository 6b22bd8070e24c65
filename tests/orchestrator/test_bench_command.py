"""`plt bench` from the outside: a table, numbers for programs, and one line for what cannot be."""

import json
from pathlib import Path

import pytest

from orchestrator.main import main
from tests.orchestrator.test_main import STUDY


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "120")
    path = tmp_path / "study.yaml"
    path.write_text(STUDY, encoding="utf-8")
    return path


def test_a_table_and_a_file_hold_the_same_numbers(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = study.with_name("numbers.json")
    asked = ["--model", str(study), "--loops", "1,2", "--batch", "1,2", "--context", "16", "--steps", "3"]
    assert main(["bench", "decode", *asked, "--variant", "plt", "--json", str(target)]) == 0
    printed = capsys.readouterr().out
    found = json.loads(target.read_text(encoding="utf-8"))
    assert [(point["setting"], point["batch_size"]) for point in found["points"]] == [
        ("plain R=1", 1),
        ("plt R=2", 1),
        ("plain R=1", 2),
        ("plt R=2", 2),
    ]
    assert "batch 2, context 16" in printed
    for point in found["points"]:
        assert f"{point['ms_p50']:.2f}" in printed
        assert point["floor_fraction"] == pytest.approx(point["floor_ms"] / point["ms_p50"])
    assert not (study.parent / "home").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--loops", "two"], "'two' is no list of whole numbers such as 1,4"),
        (["--batch", "0"], "batch_sizes is (0,); it must be one or more numbers of 1 or more"),
        (["--variant", "ptl"], "variant is 'ptl'; known variants are vanilla"),
        (["--model", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_what_cannot_be_is_refused(
    study: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    del study
    assert main(["bench", "decode", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err


def test_training_has_a_table_and_a_file_too(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = study.with_name("numbers.json")
    asked = ["--model", str(study), "--loops", "1,2", "--batch", "2", "--seq", "16", "--window", "4", "--steps", "2"]
    assert main(["bench", "train", *asked, "--variant", "plt", "--json", str(target)]) == 0
    printed = capsys.readouterr().out
    found = json.loads(target.read_text(encoding="utf-8"))
    assert [point["setting"] for point in found["points"]] == ["plain R=1", "plt R=2"]
    assert "2 x 16 tokens a step, 2 steps each" in printed.replace("\n", "")
    for point in found["points"]:
        assert f"{point['ms_p50']:.1f}" in printed
    assert main(["bench", "train", "--steps", "0"]) == 2
    assert "steps is 0; it must be 1 or more" in capsys.readouterr().err
