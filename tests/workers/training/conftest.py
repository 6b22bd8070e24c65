"""A tiny model and its data, for tests of training."""

from dataclasses import replace
from pathlib import Path

import pytest

from workers.config import DataConfig, ModelConfig, variant_knobs
from workers.data import Dataset, prepare
from workers.models import LoopedTransformer


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return prepare(DataConfig(corpus="phop", seq_len=16, eval_sequences=32, hops=1), tmp_path)


@pytest.fixture
def model_config() -> ModelConfig:
    return ModelConfig(
        vocab_size=4,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=16,
        **{**variant_knobs("plt"), "window": 4},
    )


@pytest.fixture
def model(model_config: ModelConfig) -> LoopedTransformer:
    return LoopedTransformer(model_config, seed=0)


@pytest.fixture
def plain_config(model_config: ModelConfig) -> ModelConfig:
    """One loop: the quickest to compile."""
    return replace(model_config, num_loops=1)
