"""A trial that is scored on code: after training, resumed or not; its model scored again by the report."""

import gzip
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from workers.attempt_folder import AttemptFolder
from workers.code import wheel
from workers.code.report import main
from workers.config import DataConfig, ModelConfig, TrainConfig, variant_knobs
from workers.execution import execute
from workers.protocol import FailureReason, TrialOutcome, TrialRequest

ENTRIES = [
    {
        "task_id": f"H/{index}",
        "prompt": f"def f{index}(x):\n",
        "canonical_solution": f"    return x + {index}\n",
        "test": "def check(f):\n    assert f(1) > 0\n",
        "entry_point": f"f{index}",
    }
    for index in range(6)
]


@pytest.fixture
def problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with six small problems under the name of HumanEval."""
    content = gzip.compress("\n".join(map(json.dumps, ENTRIES)).encode())
    pinned = {**vars(wheel.WHEELS["humaneval"]), "member_sha256": hashlib.sha256(content).hexdigest()}
    monkeypatch.setattr(wheel, "WHEELS", {**wheel.WHEELS, "humaneval": wheel.Wheel(**pinned)})
    path = wheel.code_file(tmp_path / "data", "humaneval")
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return tmp_path / "data"


@pytest.fixture
def request_(tmp_path: Path) -> TrialRequest:
    (tmp_path / "texts").mkdir()
    for index in range(30):
        (tmp_path / "texts" / f"{index}.py").write_text(f"def g{index}(x):\n    return x - {index}\n\n" * 40)
    data = DataConfig(corpus=f"files:{tmp_path}/texts/*.py + addition", operands=2, seq_len=64, code_sets="humaneval")
    model = ModelConfig(
        vocab_size=data.vocab_size,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        **{**variant_knobs("plt"), "window": 8},
    )
    train = TrainConfig(tokens=40 * 8 * 64, batch_size=8, precision="float32", compile="off", lr=1e-2, evaluations=1)
    folders = {"data_folder": str(tmp_path / "data"), "folder": str(tmp_path / "attempt-1")}
    return TrialRequest(attempt_id="a", model=model, data=data, train=train, seed=0, threads=1, **folders)


def outcome_of(request: TrialRequest) -> TrialOutcome:
    *_, outcome = execute(request)
    assert isinstance(outcome, TrialOutcome)
    return outcome


def test_the_references_are_scored_after_training(
    request_: TrialRequest, problems: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = outcome_of(request_)
    assert trained.failure is None
    assert {"tasks/addition/accuracy", "val/bits_per_byte", "val/accuracy"} <= trained.metrics.keys()
    untrained = outcome_of(replace(request_, train=replace(request_.train, tokens=1), folder=str(tmp_path / "b")))
    assert trained.metrics["humaneval/bits_per_byte"] < 0.8 * untrained.metrics["humaneval/bits_per_byte"]
    model = AttemptFolder(request_.folder).model
    data = ["--data", json.dumps(request_.data.to_dict()), "--data-folder", str(problems)]
    written = ["--samples", "2", "--k", "1", "2", "--lines", "3"]
    assert main([str(model), *data, "--sets", "humaneval", *written]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.pop("humaneval/bits_per_byte") == pytest.approx(trained.metrics["humaneval/bits_per_byte"], rel=1e-6)
    shares = {
        "humaneval/pass_at_1",
        "humaneval/pass_at_2",
        "humaneval/valid_syntax",
        "lines/accuracy",
        "lines/majority",
    }
    assert found.keys() == shares
    assert all(0 <= value <= 1 for value in found.values())
    assert main([str(model), "--data", '{"corpus": "phop"}', "--data-folder", str(problems), "--lines", "3"]) == 2
    assert "has no text and so no tokenizer" in capsys.readouterr().err


def test_a_set_that_is_not_there_costs_no_training(request_: TrialRequest) -> None:
    outcome = outcome_of(request_)
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.INVALID
    assert "fetch it with: plt data fetch humaneval" in outcome.failure.message
    assert not {"train/loss", "train/tokens"} & outcome.metrics.keys()
