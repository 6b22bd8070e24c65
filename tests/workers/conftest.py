"""What the tests of the workers share: golden folders, and models whose every weight counts."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from workers.config import ModelConfig, variant_knobs
from workers.models import LoopedTransformer, load_pretrained

GOLDEN = Path(__file__).parents[1] / "golden"
SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


@dataclass(frozen=True)
class Golden:
    """One golden folder: a checkpoint with inputs and expected outputs, made in float64 by independent code."""

    folder: Path
    model: LoopedTransformer
    expected: dict[str, Tensor]

    @property
    def ids(self) -> Tensor:
        return self.expected["input_ids"]


@pytest.fixture(params=sorted(path.parent.name for path in GOLDEN.glob("*/config.json")))
def golden(request: pytest.FixtureRequest) -> Golden:
    folder = GOLDEN / request.param
    with np.load(folder / "io.npz") as arrays:
        expected = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    return Golden(folder, load_pretrained(folder), expected)


@pytest.fixture
def config_of() -> Callable[..., ModelConfig]:
    """A tiny configuration of a variant; keyword arguments win over it."""

    def make(variant: str, **knobs: Any) -> ModelConfig:
        return ModelConfig(**{**SIZES, **variant_knobs(variant), **knobs})

    return make


@pytest.fixture
def make_model() -> Callable[..., LoopedTransformer]:
    """A model in which norms, gates and residual outputs are all far from their initial values."""

    def make(config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float64) -> LoopedTransformer:
        model = LoopedTransformer(config, seed=seed, dtype=dtype)
        generator = torch.Generator().manual_seed(seed + 1)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                noise = torch.empty(parameter.shape).normal_(generator=generator)
                if "norm" in name:
                    parameter.copy_(1 + 0.2 * noise)
                elif "embed" not in name:
                    parameter.copy_(noise * 1.5 / parameter.shape[-1] ** 0.5)
        return model

    return make


@pytest.fixture
def random_ids() -> Callable[..., Tensor]:
    def make(batch: int, length: int, seed: int = 0) -> Tensor:
        return torch.randint(SIZES["vocab_size"], (batch, length), generator=torch.Generator().manual_seed(seed))

    return make
