"""Exported folders of tiny models whose every weight counts, made once."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from workers.config import ModelConfig, variant_knobs
from workers.interop.export import Exported, export_model
from workers.models import LoopedTransformer, save_pretrained

os.environ.setdefault("HF_HOME", tempfile.mkdtemp())  # remote code is copied there when a folder is loaded
os.environ["HF_HUB_OFFLINE"] = "1"

SIZES = {
    "vocab_size": 61,
    "hidden_size": 64,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
    "rope_theta": 5e5,
}
"""Heads are 32 wide, the narrowest that every engine takes."""
WINDOW = 5


@dataclass(frozen=True)
class Made:
    """A model in double precision, its checkpoint, and the folder that was exported from it."""

    model: LoopedTransformer
    checkpoint: Path
    exported: Exported

    @property
    def folder(self) -> Path:
        return self.exported.folder

    def logits(self, ids: Tensor) -> Tensor:
        """(B, S, V), float64, recomputed from nothing."""
        with torch.inference_mode():
            return self.model(ids).logits


def make_config(variant: str, **knobs: Any) -> ModelConfig:
    preset = variant_knobs(variant)
    if preset.get("local") == "swa":
        preset["window"] = WINDOW
    return ModelConfig(**{**SIZES, **preset, **knobs})


def make_random(config: ModelConfig, seed: int = 0) -> LoopedTransformer:
    """Norms, gates and residual outputs are all far from their initial values, and logits of ordinary size."""
    model = LoopedTransformer(config, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.empty(parameter.shape).normal_(generator=generator)
            if "norm" in name:
                parameter.copy_(1 + 0.2 * noise)
            elif "embed" not in name:
                parameter.copy_(noise * 1.5 / parameter.shape[-1] ** 0.5)
            elif config.tie_word_embeddings:
                parameter.mul_(0.2)
    return model


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Made]:
    """`made("plt", num_loops=3, ...)`: the same arguments give the same folders."""
    kept: dict[tuple[object, ...], Made] = {}

    def make(variant: str, *, layout: Any = None, dtype: torch.dtype = torch.float32, **knobs: Any) -> Made:
        key = (variant, layout, dtype, *sorted(knobs.items()))
        if key not in kept:
            folder = tmp_path_factory.mktemp("made")
            model = make_random(make_config(variant, **knobs)).to(dtype)
            save_pretrained(model, folder / "checkpoint")
            exported = export_model(folder / "checkpoint", folder / f"exported {len(kept)}-1.0", layout=layout)
            kept[key] = Made(model.double(), folder / "checkpoint", exported)
        return kept[key]

    return make


@pytest.fixture
def random_ids() -> Callable[..., Tensor]:
    def make(batch: int, length: int, seed: int = 0) -> Tensor:
        return torch.randint(SIZES["vocab_size"], (batch, length), generator=torch.Generator().manual_seed(seed))

    return make
