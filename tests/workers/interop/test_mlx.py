"""Exported folders in mlx-lm, whose implementation of the looped architecture others wrote."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from torch import Tensor

Make = Callable[..., Any]
Ids = Callable[..., Tensor]


def logits_of(folder: Path, ids: Tensor, prefill: int) -> Tensor:
    """(B, S, V): a prefill, then one token at a time with mlx-lm's own caches."""
    mx.set_default_device(mx.cpu)
    model, _ = load_model(folder)
    cache, parts = make_prompt_cache(model), []
    for chunk in torch.split(ids, [prefill, *[1] * (ids.shape[1] - prefill)], 1):
        parts.append(np.array(model(mx.array(chunk.numpy()), cache=cache).astype(mx.float32)))
    return torch.from_numpy(np.concatenate(parts, 1))


@pytest.mark.parametrize(
    ("variant", "knobs"),
    [
        ("iquest-loop", {}),
        ("iquest-loop", {"tie_word_embeddings": True, "window": 1}),
        ("iquest-loop", {"num_attention_heads": 4, "num_key_value_heads": 2, "window": 16}),
        ("iquest-loop", {"gate_polarity": "local"}),
        ("vanilla", {}),
        ("vanilla", {"tie_word_embeddings": True}),
    ],
)
def test_logits_are_ours(variant: str, knobs: dict, made: Make, random_ids: Ids) -> None:
    """A prompt longer than the window, then decoding past the window again."""
    ours, ids = made(variant, **knobs), random_ids(2, 44)
    logits = logits_of(ours.folder, ids, 24)
    torch.testing.assert_close(logits, ours.logits(ids), atol=2e-4, rtol=0, check_dtype=False)


def test_the_comparison_would_see_a_window_that_is_one_off(made: Make, random_ids: Ids) -> None:
    ours, wider, ids = made("iquest-loop"), made("iquest-loop", window=6), random_ids(1, 30)
    assert (logits_of(wider.folder, ids, 20) - ours.logits(ids)).abs().max() > 0.05
