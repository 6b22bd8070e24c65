"""One set of weights under several loop settings."""

from collections.abc import Callable

import pytest
import torch

from workers.config import ModelConfig
from workers.models import LoopedTransformer, share_weights

Configure = Callable[..., ModelConfig]


def test_the_twin_holds_the_very_same_tensors(config_of: Configure) -> None:
    model = LoopedTransformer(config_of("plt", window=4))
    twin = share_weights(model, config_of("vanilla"))
    own = dict(model.named_parameters())
    for name, parameter in twin.named_parameters():
        assert parameter is own[name]
    assert own.keys() - dict(twin.named_parameters()).keys() == {
        f"model.layers.{layer}.self_attn.plt_gate.{part}" for layer in range(2) for part in ("weight", "bias")
    }
    ids = torch.arange(6)[None]
    with torch.inference_mode():  # loop 1 is the plain transformer
        assert torch.equal(twin(ids).logits, model(ids, every_loop=True).loop_logits[0])


def test_what_the_model_lacks_is_named(config_of: Configure) -> None:
    model = LoopedTransformer(config_of("vanilla"))
    with pytest.raises(ValueError, match=r"plt_gate.weight must have shape \(4, 8\); .* has nothing"):
        share_weights(model, config_of("plt", window=4))
    with pytest.raises(ValueError, match=r"gate_proj.weight must have shape \(64, 32\); .* has shape \(56, 32\)"):
        share_weights(model, config_of("vanilla", intermediate_size=64))
