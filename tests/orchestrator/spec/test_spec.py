"""A right study file is read as it is meant."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from orchestrator.configuration import LOOP_KNOBS, SIZES
from orchestrator.errors import SpecError
from orchestrator.spec import StudySpec, load_spec
from orchestrator.spec.search import Choices, Range
from orchestrator.spec.sections import DataSection, ModelSection, TrainSection
from workers.config import DataConfig, ModelConfig, TrainConfig

WHOLE_VOCABULARY = """
name: plt-loop-count
question: How many loops pay for themselves at this size?      # shown to people
model:      {variant: plt, d_model: 256, num_layers: 4, num_heads: 4, num_kv_heads: 2}
data:       {corpus: stdlib, vocab: bytes, seq_len: 256}
train:      {tokens: 4M, batch_size: 16, lr: 3e-3, precision: auto, compile: off}
search:
  num_loops:  {choices: [1, 2, 3, 4]}
  window:     {choices: [8, 16, 64], when: {num_loops: ">1", local: swa}}
  gate_mode:  {choices: [learned, 0.5], when: {num_loops: ">1", local: swa}}
  lr:         {low: 1e-3, high: 1e-2, log: true}
  tokens:     {low: 1M, high: 4M, step: 1M}
seeds: [0, 1, 2]
objectives:
  - {metric: val/bits_per_byte, direction: minimize}
  - {metric: decode/ms_per_token, direction: minimize}
  - {metric: b8/decode/ms_per_token, direction: minimize}
constraints: ["decode/ms_per_token <= 12", "kv/bytes_per_sequence <= 40MB"]
sampler:    {name: tpe, seed: 7}
pruner:     {name: none}
budget:     {configurations: 24, wall_clock: 2h, max_failure_rate: 0.5}
resources:  {train: {gpus: 0.25, cpus: 2}, benchmark: {cpus: 4}}
benchmark:  {model: {d_model: 1024, num_layers: 8}, batch_sizes: [1, 8], context: 512, generate: 128, repeats: 5,
             precision: float32}
retry:      {max_attempts: 2}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_whole_vocabulary_is_read(tmp_path: Path) -> None:
    spec = load_spec(write(tmp_path, "study.yaml", WHOLE_VOCABULARY))
    assert spec.train.tokens == 4_000_000
    assert spec.train.lr == 0.003
    assert spec.train.compile == "off"
    assert list(spec.search) == ["num_loops", "window", "gate_mode", "lr", "tokens"]
    loops, gate, rate, tokens = (spec.search[name] for name in ("num_loops", "gate_mode", "lr", "tokens"))
    assert isinstance(loops, Choices)
    assert loops.choices == (1, 2, 3, 4)
    assert isinstance(gate, Choices)
    assert gate.choices == ("learned", 0.5)
    assert isinstance(rate, Range)
    assert (rate.low, rate.high, rate.log, rate.whole) == (0.001, 0.01, True, False)
    assert isinstance(tokens, Range)
    assert tokens.whole
    assert list(tokens.every() or ()) == [1_000_000, 2_000_000, 3_000_000, 4_000_000]
    assert spec.seeds == (0, 1, 2)
    assert spec.budget.wall_clock == 7200
    assert (spec.resources.train.gpus, spec.resources.benchmark.threads) == (0.25, 4)
    assert spec.benchmark is not None
    assert spec.benchmark.config().batch_sizes == (1, 8)
    assert spec.benchmark.sizes() == {"d_model": 1024, "num_layers": 8}


def test_plain_data_reads_back_to_an_equal_spec(tmp_path: Path) -> None:
    spec = load_spec(write(tmp_path, "study.yaml", WHOLE_VOCABULARY))
    again = StudySpec.from_plain(spec.to_plain())
    assert again == spec
    assert again.to_plain() == spec.to_plain()


def test_a_spec_that_was_stored_before_pruners_and_device_hours_still_reads() -> None:
    stored = {
        "name": "old",
        "question": "",
        "model": {"d_model": 64, "num_layers": 2, "num_heads": 4, "variant": "plt"},
        "data": {"corpus": "stdlib", "vocab": "bytes", "seq_len": 128},
        "train": {"tokens": 1000000, "lr": 0.003},
        "seeds": [0, 1],
        "objectives": [{"metric": "val/loss", "direction": "minimize"}],
        "constraints": ["kv/bytes_per_sequence <= 4MB"],
        "sampler": {"name": "auto", "seed": 0},
        "pruner": {"name": "none"},
        "budget": {"configurations": 5, "max_failure_rate": 0.2},
        "resources": {"train": {"cpus": 1.0}, "benchmark": {}},
        "benchmark": {
            "model": {},
            "batch_sizes": [1],
            "context": 512,
            "generate": 32,
            "repeats": 3,
            "precision": "bfloat16",
        },
        "retry": {"max_attempts": 3},
        "search": {"num_loops": {"choices": [1, 2]}, "window": {"when": {"num_loops": ">1"}, "choices": [8, 16]}},
    }
    plain = StudySpec.from_plain(stored).to_plain()
    for section in ("model", "data", "train", "search", "objectives", "constraints", "benchmark", "sampler", "pruner"):
        assert plain[section] == stored[section]
    assert plain["retry"].items() >= {"max_attempts": 3, "trial_timeout": 1800}.items()


def test_what_was_allowed_when_it_was_stored_still_reads(plain_study: Callable[..., dict[str, Any]]) -> None:
    plain = plain_study(train={"tokens": 100, "batch_size": 16})
    with pytest.raises(SpecError, match="tokens is 100; it must be at least 2,048"):
        StudySpec.from_plain(plain)
    assert StudySpec.from_stored(plain).train.tokens == 100
    with pytest.raises(SpecError, match=r"train\.tokens is 'many'"):
        StudySpec.from_stored({**plain, "train": {"tokens": "many"}})


def test_every_setting_of_the_configurations_can_be_written() -> None:
    assert set(DataSection.model_fields) == {field.name for field in fields(DataConfig)}
    assert set(TrainSection.model_fields) == {field.name for field in fields(TrainConfig)}
    derived = {"vocab_size", "max_position_embeddings"}
    renamed = {**{target: name for name, target in SIZES.items()}, "tie_word_embeddings": "tie_embeddings"}
    model = {renamed.get(field.name, field.name) for field in fields(ModelConfig)} - derived
    assert set(ModelSection.model_fields) == model | {"variant", "vocab", "from_folder"}
    assert set(LOOP_KNOBS) <= model


@pytest.mark.parametrize(
    ("written", "value"),
    [("1e-4", 1e-4), ("1_000", 1000.0), ("3", 3.0), (".5", 0.5), ("0x10", 16.0)],
)
def test_numbers_are_yaml_1_2(tmp_path: Path, written: str, value: float) -> None:
    text = WHOLE_VOCABULARY.replace("lr: 3e-3", f"lr: {written}")
    assert load_spec(write(tmp_path, "study.yaml", text)).train.lr == value


def test_a_base_is_overridden_in_depth(tmp_path: Path) -> None:
    write(tmp_path, "whole.yaml", WHOLE_VOCABULARY)
    (tmp_path / "deeper").mkdir()
    path = write(
        tmp_path / "deeper",
        "study.yaml",
        "base: ../whole.yaml\nname: other\nmodel: {d_model: 128}\n"
        "search: {tokens: null, lr: {choices: [1e-3]}, hidden_scale: {low: 0.1, high: 1}}\n"
        "constraints: []\nretry: null\n",
    )
    spec, whole = load_spec(path), load_spec(tmp_path / "whole.yaml")
    assert spec.name == "other"
    assert spec.question == whole.question
    assert spec.model == whole.model.model_copy(update={"d_model": 128})
    assert list(spec.search) == ["num_loops", "window", "gate_mode", "lr", "hidden_scale"]
    assert isinstance(spec.search["lr"], Choices)
    assert spec.constraints == ()
    assert spec.retry.max_attempts == 3


def test_yaml_merge_keys_and_aliases_are_plain_data(tmp_path: Path) -> None:
    text = WHOLE_VOCABULARY.replace(
        "resources:  {train: {gpus: 0.25, cpus: 2}, benchmark: {cpus: 4}}",
        "resources:\n  benchmark: &share {cpus: 4}\n  train: {<<: *share, gpus: 0.25}",
    )
    spec = load_spec(write(tmp_path, "study.yaml", text))
    assert (spec.resources.train.gpus, spec.resources.train.cpus) == (0.25, 4)


def test_a_study_without_search_is_one_configuration(make_spec: Callable[..., StudySpec]) -> None:
    assert make_spec(search={}).search == {}


def test_two_corpora_allow_the_metrics_that_both_produce(make_spec: Callable[..., StudySpec]) -> None:
    objectives = [{"metric": "val/loss", "direction": "minimize"}]
    spec = make_spec(search={"corpus": {"choices": ["stdlib", "phop"]}}, objectives=objectives)
    assert spec.objectives[0].metric == "val/loss"


@pytest.mark.parametrize("name", ["a", "A-1.b_c", "9" * 100])
def test_plain_names_are_taken(make_spec: Callable[..., Any], name: str) -> None:
    assert make_spec(name=name).name == name


def test_a_glob_is_relative_to_the_study_file(tmp_path: Path) -> None:
    text = WHOLE_VOCABULARY.replace("corpus: stdlib", "corpus: 'files:texts/*.txt'")
    assert text != WHOLE_VOCABULARY
    (tmp_path / "texts").mkdir()
    write(tmp_path / "texts", "a.txt", "to train on and to hold out, " * 1000)
    assert load_spec(write(tmp_path, "study.yaml", text)).data.corpus == f"files:{tmp_path.resolve()}/texts/*.txt"
