"""Any configuration, cut anyhow: decoding equals the training form."""

from itertools import pairwise
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers.config import ModelConfig
from workers.decoding import Decoder
from workers.models import LoopedTransformer

LENGTH = 11


@st.composite
def configurations(draw: st.DrawFn) -> ModelConfig:
    kv_heads, group, head_dim = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.sampled_from([4, 8, 12]))
    knobs: dict[str, Any] = {
        name: draw(st.booleans()) for name in ("clp", "reinject", "norm_per_loop", "tie_word_embeddings")
    }
    if draw(st.booleans()):
        knobs |= {
            "local": "swa",
            "window": draw(st.integers(1, LENGTH + 2)),
            "gate_input": draw(st.sampled_from(["query", "hidden"])),
            "gate_polarity": draw(st.sampled_from(["global", "local"])),
            "gate_mode": draw(st.sampled_from(["learned", 0.0, 0.3, 1.0])),
        }
    return ModelConfig(
        vocab_size=13,
        hidden_size=kv_heads * group * head_dim,
        intermediate_size=draw(st.integers(1, 20)),
        num_hidden_layers=draw(st.integers(1, 2)),
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        num_loops=draw(st.integers(1, 4)),
        kv_mode=draw(st.sampled_from(["per_loop", "share_first"])),
        emb_scale=draw(st.sampled_from([1.0, 0.7])),
        hidden_scale=draw(st.sampled_from([1.0, 0.3])),
        max_position_embeddings=LENGTH,
        **knobs,
    )


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    config=configurations(),
    cuts=st.lists(st.integers(1, LENGTH - 1), max_size=4, unique=True),
    by_step=st.sets(st.integers(0, 4)),
    wide=st.booleans(),
    static_shapes=st.booleans(),
)
def test_decoding_equals_the_training_form(
    config: ModelConfig, cuts: list[int], by_step: set[int], wide: bool, static_shapes: bool
) -> None:
    generator = torch.Generator().manual_seed(len(cuts))
    model = LoopedTransformer(config, dtype=torch.float64 if wide else torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.empty_like(parameter).normal_(0, 0.3, generator=generator))
        ids = torch.randint(config.vocab_size, (2, LENGTH), generator=generator)
        expected = model(ids).logits
    decoder = Decoder(model, 2, LENGTH, static_shapes=static_shapes)
    edges, parts = [0, *sorted(cuts), LENGTH], []
    for number, (start, stop) in enumerate(pairwise(edges)):
        chunk = ids[:, start:stop]
        if number in by_step:
            parts.append(torch.stack([decoder.step(column) for column in chunk.unbind(1)], 1))
        else:
            parts.append(decoder.prefill(chunk))
    error = (torch.cat(parts, 1) - expected).norm() / expected.norm()
    assert error < (1e-11 if wide else 1e-4)
