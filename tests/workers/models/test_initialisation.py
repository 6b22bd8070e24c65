"""Initial weights: their seed, their scales, and the side on which a gate starts."""

import math
from collections.abc import Callable

import pytest
import torch

from workers.config import ModelConfig
from workers.models import LoopedTransformer, initialise

Configure = Callable[..., ModelConfig]


def test_weights_depend_on_the_seed_alone(config_of: Configure) -> None:
    config = config_of("plt", window=4)
    torch.manual_seed(1)
    first = LoopedTransformer(config, seed=7)
    torch.manual_seed(2)
    again, other = LoopedTransformer(config, seed=7), LoopedTransformer(config, seed=8)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.model.embed_tokens.weight, other.model.embed_tokens.weight)
    initialise(other, 7)
    assert torch.equal(first.model.embed_tokens.weight, other.model.embed_tokens.weight)
    narrow = LoopedTransformer(config, seed=7, dtype=torch.bfloat16)
    assert torch.equal(narrow.model.embed_tokens.weight, first.model.embed_tokens.weight.bfloat16())


def test_making_a_model_leaves_the_global_generator_alone(config_of: Configure) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    LoopedTransformer(config_of("plt", window=4))
    assert torch.equal(torch.rand(1), expected)


def test_scales(config_of: Configure) -> None:
    config = config_of("vanilla", vocab_size=4000, hidden_size=256, intermediate_size=512, embedding_init_std=0.7)
    weights = LoopedTransformer(config).state_dict()
    small = math.sqrt(2 / (5 * 256))
    expected = {
        "model.embed_tokens.weight": 0.7,
        "lm_head.weight": small,
        "model.layers.1.self_attn.q_proj.weight": small,
        "model.layers.1.mlp.up_proj.weight": small,
        "model.layers.1.self_attn.o_proj.weight": small / 2,  # two layers
        "model.layers.1.mlp.down_proj.weight": small / 2,
    }
    for name, std in expected.items():
        assert weights[name].std().item() == pytest.approx(std, rel=0.02), name
    assert torch.equal(weights["model.norm.weight"], torch.ones(256))


@pytest.mark.parametrize("gate_input", ["query", "hidden"])
@pytest.mark.parametrize(("polarity", "gate"), [("global", 1 / (1 + math.exp(-2))), ("local", 1 / (1 + math.exp(2)))])
def test_the_gate_starts_on_the_full_context_side(
    config_of: Configure, gate_input: str, polarity: str, gate: float
) -> None:
    """gate_bias_init = +2 means a global share of sigmoid(2) = 0.88, whatever the gate multiplies."""
    config = config_of("plt", window=4, gate_input=gate_input, gate_polarity=polarity, gate_bias_init=2.0)
    output = LoopedTransformer(config)(torch.arange(8)[None], every_loop=True)
    torch.testing.assert_close(output.gates[0], torch.full_like(output.gates[0], gate), atol=1e-6, rtol=0)
