"""`plt export-model` and `plt import-model` from the outside: a study's model out, in, and on as another study."""

import json
import os
import tempfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from orchestrator.main import main
from workers.models import load_pretrained

os.environ.setdefault("HF_HOME", tempfile.mkdtemp())  # remote code is copied there when a folder is loaded

STUDY = """\
name: first
question: Does it travel?
model: {variant: iquest-loop, d_model: 32, num_layers: 1, num_heads: 2, window: 8}
data: {corpus: "files:*.txt", vocab: "bpe:300", seq_len: 32, eval_sequences: 4}
train: {tokens: 2048, batch_size: 4, precision: float32, compile: off, evaluations: 1}
search: {clp: {choices: [false, true]}}
objectives: [{metric: val/bits_per_byte, direction: minimize}]
sampler: {name: grid}
budget: {configurations: 2}
"""
TUNED = """\
name: tuned
model: {from: home/models/served}
data: {corpus: "files:*.txt", seq_len: 32, eval_sequences: 4}
train: {tokens: 2048, batch_size: 4, lr: 1e-12, precision: float32, compile: off, evaluations: 1}
search: {num_loops: {choices: [2, 3]}}
objectives: [{metric: val/bits_per_byte, direction: minimize}]
sampler: {name: grid}
budget: {configurations: 2}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    for index in range(8):
        (tmp_path / f"{index}.txt").write_text(f"the {index} quick brown foxes jump over the lazy dogs\n" * 40)
    return tmp_path / "home"


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a refused command prints."""
    before = sorted(Path.cwd().iterdir())
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert sorted(Path.cwd().iterdir()) == before
    line: str = captured.err.strip()
    return line


def run(text: str, name: str) -> None:
    Path(name).write_text(text, encoding="utf-8")
    assert main(["run", name, "--backend", "local", "--quiet"]) == 0


def test_out_and_in_and_on(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(STUDY, "first.yaml")
    capsys.readouterr()

    assert main(["export-model", "first/0", "--out", "served"]) == 0
    assert capsys.readouterr().out.startswith("served: layout iquestloopcoder, README.md, config.json")
    theirs, tokenizer = (
        kind.from_pretrained("served", trust_remote_code=True) for kind in (AutoModelForCausalLM, AutoTokenizer)
    )
    ids = tokenizer("the 3 quick", return_tensors="pt").input_ids
    ours = load_pretrained(home / "studies/first/trials/0/attempt-1/checkpoint")
    with torch.inference_mode():
        torch.testing.assert_close(theirs(ids).logits, ours(ids).logits, atol=1e-4, rtol=0)
    assert theirs.config.eos_token_id == tokenizer.eos_token_id == 299
    card = Path("served/README.md").read_text()
    for fact in ("license_name: ", "| study | first |", "| question | Does it travel? |", "| trial | 0 |",
                 "| data | files:*.txt |", "val/bits_per_byte", "AutoTokenizer", "vLLM reads it"):  # fmt: skip
        assert fact in card
    assert str(Path.cwd()) not in card

    assert main(["import-model", "served"]) == 0
    assert "models/served: iquestloopcoder, " in capsys.readouterr().out
    run(TUNED, "tuned.yaml")
    capsys.readouterr()
    assert main(["export", "first", "--format", "json"]) == 0
    before = json.loads(capsys.readouterr().out)[0]["metrics"]["val/bits_per_byte"]
    assert main(["export", "tuned", "--format", "json"]) == 0
    kept, more = json.loads(capsys.readouterr().out)
    assert kept["metrics"]["val/bits_per_byte"] == pytest.approx(before, rel=1e-5)
    assert more["metrics"]["val/bits_per_byte"] != pytest.approx(before, rel=1e-3)

    assert main(["export-model", "tuned/1", "--out", "again"]) == 0
    assert json.loads(Path("again/config.json").read_text())["loop_num"] == 3
    assert "| fine-tuned from | served |" in Path("again/README.md").read_text()
    assert Path("again/tokenizer.json").read_bytes() == Path("served/tokenizer.json").read_bytes()
    capsys.readouterr()

    refusal = refused(["export-model", "first/1", "--format", "iquestloopcoder", "--out", "wrong"], capsys)
    assert refusal.startswith("plt: layout iquestloopcoder cannot express it: clp is on")
    assert "has one loop" not in refusal
    assert "it has 2 loops" in refused(["export-model", "first/0", "--format", "gguf", "--out", "wrong"], capsys)
    assert "served exists and is not empty" in refused(["export-model", "first/0", "--out", "served"], capsys)
    assert "has no trial 9" in refused(["export-model", "first/9", "--out", "wrong"], capsys)
    assert "models/served exists and is not empty" in refused(["import-model", "served"], capsys)
    Path("home/models/served/model.safetensors").write_bytes(Path("again/model.safetensors").read_bytes()[:-8])
    assert main(["run", "tuned.yaml", "--backend", "local", "--quiet"]) == 2
    assert "began with other data: corpus of the weights in" in capsys.readouterr().err


@pytest.mark.usefixtures("home")
def test_what_cannot_be_done_is_said_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    export = ["export-model", "--out", "out"]
    assert "names no trial" in refused([*export, "nothing"], capsys)
    assert "there is no study 'nothing'" in refused([*export, "nothing/0"], capsys)
    assert "must be an amount of memory" in refused([*export, "nothing/0", "--shard-size", "5 parsecs"], capsys)
    assert "no effect without --verify" in refused([*export, "nothing/0", "--verify-with", "python"], capsys)
    assert "config.json does not exist" in refused(["import-model", "nowhere"], capsys)
    assert "is no name of the hub" in refused(["import-model", "hf:../secrets"], capsys)
    Path("empty").mkdir()
    assert "empty holds no config.json" in refused([*export, "empty"], capsys)
    assert "empty/config.json does not exist" in refused(["import-model", "empty"], capsys)
