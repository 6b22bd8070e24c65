"""`model: {from: FOLDER}`: what the checkpoint says counts as written, and what contradicts it is refused by line."""

import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.configuration import resolve
from orchestrator.errors import SpecError
from orchestrator.spec import StudySpec, load_spec
from workers.config import ModelConfig, variant_knobs
from workers.data.bpe_tokenizer import BpeTokenizer
from workers.interop.tokenizer_files import write_tokenizer
from workers.models import LoopedTransformer, save_pretrained

STUDY = """\
name: tune
model: {model}
data: {data}
train: {{tokens: 4096, batch_size: 4}}
{search}
objectives: [{{metric: val/bits_per_byte, direction: minimize}}]
budget: {{configurations: 4}}
"""
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_theta": 5e5,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}


def checkpoint(folder: Path, variant: str = "iquest-loop", **knobs: Any) -> ModelConfig:
    config = ModelConfig(**{"vocab_size": 257, **SIZES, **variant_knobs(variant), "window": 8, **knobs})
    save_pretrained(LoopedTransformer(config), folder)
    return config.normalised()


def study(tmp_path: Path, model: str = "{from: start}", data: str = "{seq_len: 64}", search: str = "") -> StudySpec:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.format(model=model, data=data, search=search and f"search: {search}"), encoding="utf-8")
    return load_spec(path)


def refused(*arguments: Any, **keywords: Any) -> str:
    with pytest.raises(SpecError) as caught:
        study(*arguments, **keywords)
    return str(caught.value)


def test_the_model_is_the_checkpoints(tmp_path: Path) -> None:
    config = checkpoint(tmp_path / "start")
    spec = study(tmp_path)
    configuration = resolve(spec, {})
    expected = {**config.to_dict(), "max_position_embeddings": 64, "embedding_init_std": 1.0, "gate_bias_init": 2.0}
    assert configuration.model.to_dict() == expected
    assert configuration.initial == str(tmp_path / "start")
    assert configuration.knobs["from"] == str(tmp_path / "start")
    again = StudySpec.from_stored(spec.to_plain())
    assert again == spec
    (tmp_path / "start" / "config.json").unlink()  # the study knows its whole question
    assert resolve(again, {}).fingerprint == configuration.fingerprint


def test_loops_may_change_and_other_weights_are_another_configuration(tmp_path: Path) -> None:
    checkpoint(tmp_path / "start")
    checkpoint(tmp_path / "other")
    spec = study(tmp_path, "{from: start, window: 4}", search="{num_loops: {choices: [1, 2, 3]}}")
    three = resolve(spec, {"num_loops": 3}).model
    assert (three.num_loops, three.window, three.kv_mode, three.gate_input) == (3, 4, "share_first", "query")
    prints = {resolve(study(tmp_path, f"{{from: {name}}}"), {}).fingerprint for name in ("start", "other")}
    assert len(prints) == 2


def test_a_variant_wins_over_the_checkpoints_loops(tmp_path: Path) -> None:
    checkpoint(tmp_path / "start", "vanilla")
    assert resolve(study(tmp_path), {}).model.num_loops == 1
    looped = resolve(study(tmp_path, "{from: start, variant: loopcoder-v2, window: 8}"), {}).model
    assert (looped.num_loops, looped.clp, looped.gate_input) == (2, True, "hidden")
    assert looped.hidden_size == 32


@pytest.mark.parametrize(
    ("model", "search", "message"),
    [
        ("{from: start, d_model: 64}", "", "2: d_model is 64, and the checkpoint has 32; leave it out"),
        ("{from: start, rms_norm_eps: 1e-5}", "", "rms_norm_eps is 1e-05, and the checkpoint has 1e-06"),
        ("{from: start}", "{num_layers: {choices: [1, 2]}}", "num_layers is searched, and the checkpoint has 1"),
        ("{from: start, vocab: bpe:300}", "", "the checkpoint has 257 token ids and no tokenizer.json"),
        ("{from: nowhere}", "", "from is 'nowhere': .*nowhere/config.json does not exist"),
        ("{from: 7}", "", "model.from is 7; it must be text"),
        ("{from: start, num_loops: 2, window: 0}", "", "window is 0"),
        ("{d_model: 32, form: start}", "", "model.form is not a known key; known are from, vocab"),
    ],
)
def test_what_contradicts_the_checkpoint(model: str, search: str, message: str, tmp_path: Path) -> None:
    checkpoint(tmp_path / "start")
    assert re.search(message, refused(tmp_path, model, search=search))


def test_the_checkpoints_own_tokenizer_cuts_the_text(tmp_path: Path) -> None:
    checkpoint(tmp_path / "start", vocab_size=300)
    assert "300 token ids and no tokenizer.json" in refused(tmp_path)
    write_tokenizer(tmp_path / "start", BpeTokenizer.train(300, [b"some text, some more"] * 9).to_json(), 300)
    data = resolve(study(tmp_path), {}).data
    assert data.tokenizer is not None
    assert (data.vocab_size, data.tokenizer.end) == (300, 299)
    assert data.tokenizer.path == str(tmp_path / "start" / "tokenizer.json")
    written = refused(tmp_path, data="{seq_len: 64, vocab: bpe:300}")
    assert "study.yaml:3: vocab is written, and the checkpoint has a tokenizer.json; leave vocab out" in written
