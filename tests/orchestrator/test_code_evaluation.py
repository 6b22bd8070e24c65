"""`plt evaluate` on a trial of a real study, and `plt data fetch` from the outside."""

import json
from pathlib import Path

import pytest

from orchestrator.main import main

STUDY = """\
name: small-code
model: {variant: plt, d_model: 16, num_layers: 1, num_heads: 2, num_kv_heads: 2, window: 8, num_loops: 2}
data: {corpus: "files:texts/*.py + addition", operands: 2, seq_len: 64, eval_sequences: 8}
train: {tokens: 4096, batch_size: 8, precision: float32, compile: off, evaluations: 1}
objectives:
  - {metric: val/bits_per_byte, direction: minimize}
  - {metric: tasks/addition/accuracy, direction: maximize}
budget: {configurations: 1}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the study has been run."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "texts").mkdir()
    for index in range(30):
        (folder / "texts" / f"{index}.py").write_text(f"def g{index}(x):\n    return x - {index}\n\n" * 40)
    (folder / "study.yaml").write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLT_HOME", str(folder / "home"))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        assert main(["run", str(folder / "study.yaml"), "--backend", "local", "--quiet"]) == 0
    return folder / "home"


def test_a_trials_model_is_scored(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLT_HOME", str(home))
    assert main(["evaluate", "small-code/0", "--lines", "5", "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics.keys() == {"lines/accuracy", "lines/majority"}
    assert 0 <= metrics["lines/accuracy"] <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "small-code/0", "--set", "humaneval"], "fetch it with: plt data fetch humaneval"),
        (["evaluate", "small-code/0", "--set", "humanevil"], "'humanevil' is no code set; choose from humaneval, mbpp"),
        (["evaluate", "small-code/7"], "has no trial 7; it has 1"),
        (["evaluate", "small-code"], "names no trial"),
        (["data", "fetch", "mbpq"], "'mbpq' is no code set; choose from humaneval, mbpp"),
    ],
)
def test_what_cannot_be_scored_is_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    monkeypatch.setenv("PLT_HOME", str(home))
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert len(said.err.strip().splitlines()) == 1
