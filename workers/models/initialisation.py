"""Initial weights from a seed: the same ones on every device, drawn in float32 on the CPU.

    embeddings          normal, standard deviation `embedding_init_std`; a tied head inherits it
    linear weights      normal, sqrt(2 / (5 d)) ("small init", Nguyen and Salazar 2019): 0.02 at d = 1000
    residual outputs    (o_proj, down_proj) the same over sqrt(2 L), as in GPT-2
    norm weights        one
    gate                weight zero, bias `gate_bias_init` in the direction of the full-context branch

Looped models need embeddings near unit scale and residual outputs that start small: what a loop adds must not drown the
embedding that the next loop re-injects.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workers.config import ModelConfig

if TYPE_CHECKING:
    from workers.models.looped_transformer import LoopedTransformer


def initialise(model: "LoopedTransformer", seed: int) -> None:
    """Set every parameter of `model` in place; parameters on the meta device stay without a value."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.is_meta:
                _fill(name, parameter, model.config, generator)


def _fill(name: str, parameter: Tensor, config: ModelConfig, generator: torch.Generator) -> None:
    if name.endswith("plt_gate.bias"):
        towards_global = 1.0 if config.gate_polarity == "global" else -1.0
        parameter.fill_(towards_global * (config.gate_bias_init or 0.0))
    elif name.endswith("plt_gate.weight"):
        parameter.zero_()
    elif parameter.dim() == 1:
        parameter.fill_(1.0)
    else:
        std = _deviation(name, config)
        parameter.copy_(torch.empty(parameter.shape).normal_(0.0, std, generator=generator))


def _deviation(name: str, config: ModelConfig) -> float:
    if "embed_tokens" in name:
        return config.embedding_init_std
    small = math.sqrt(2 / (5 * config.hidden_size))
    residual = "o_proj" in name or "down_proj" in name
    return small / math.sqrt(2 * config.num_hidden_layers) if residual else small
