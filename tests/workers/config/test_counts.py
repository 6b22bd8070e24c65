"""Counts from the configuration against the golden files, real tensors, and PyTorch's own FLOP counter."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from workers.config import VARIANTS, ModelConfig
from workers.config.counts import (
    carry_bytes_per_sequence,
    flops_per_token,
    kv_bytes_per_sequence,
    parameter_count,
)
from workers.models import LoopedTransformer


def test_cache_bytes_match_the_golden_values(golden: Any) -> None:
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        assert carry_bytes_per_sequence(golden.model.config, size) == int(golden.expected[f"carry_bytes_{dtype}"])
        for length, expected in zip(golden.expected["kv_lengths"], golden.expected[f"kv_bytes_{dtype}"], strict=True):
            assert kv_bytes_per_sequence(golden.model.config, int(length), size) == int(expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("knobs", [{}, {"tie_word_embeddings": True}, {"num_loops": 3}])
def test_parameters_match_the_tensors(variant: str, knobs: dict, config_of: Callable[..., ModelConfig]) -> None:
    config = config_of(variant, **knobs)
    model = LoopedTransformer(config, device="meta")
    assert parameter_count(config) == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("knobs", [{}, {"num_loops": 3, "num_key_value_heads": 4, "tie_word_embeddings": True}])
def test_flops_match_pytorch_and_the_keys_that_are_seen(
    variant: str, knobs: dict, config_of: Callable[..., ModelConfig], random_ids: Callable[..., Tensor]
) -> None:
    """PyTorch counts the products of a training step but not the CPU's fused attention, whose keys are counted here."""
    length, window = 24, 5
    config = config_of(variant, **{"num_loops": VARIANTS[variant]["num_loops"], **knobs})
    config = replace(config, window=window) if config.local == "swa" else config
    model, ids = LoopedTransformer(config), random_ids(2, length)
    with FlopCounterMode(display=False) as counter:
        cross_entropy(model(ids).logits.flatten(0, 1), ids.flatten()).backward()
    full = sum(range(1, length + 1))
    local = sum(min(slot, window) for slot in range(1, length + 1)) if config.local == "swa" else 0
    seen = config.num_hidden_layers * (config.num_loops * full + (config.num_loops - 1) * local)
    attention = 3 * 2 * 2 * config.num_attention_heads * config.head_dim * seen / length
    query_gate = config.has_gate and config.gate_input == "query"  # an elementwise product to PyTorch
    gates = config.num_hidden_layers * (config.num_loops - 1) * 6 * config.hidden_size if query_gate else 0
    per_token = counter.get_total_flops() / ids.numel() + attention + gates
    assert flops_per_token(config, length) == pytest.approx(per_token, rel=1e-9)
    assert torch.isfinite(model.model.norm.weight.grad).all()
