"""The gate of gated sliding-window attention: one scalar per query head, token and layer, shared by all later loops.

query mode   z_h = <weight[h], q_h> + bias[h]                 weight (H, dh), q after RoPE    (PLT, arXiv 2510.24824)
hidden mode  z   = weight . RMSNorm_gate(x) + bias            weight (H, d),  x enters layer  (arXiv 2606.18023)
g = sigmoid(z)
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from workers.config import ModelConfig
from workers.models.norm import RMSNorm


class Gate(nn.Module):
    """Gate values in (0, 1) before polarity is applied."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        heads = config.num_attention_heads
        hidden = config.gate_input == "hidden"
        self.weight = nn.Parameter(torch.zeros(heads, config.hidden_size if hidden else config.head_dim))
        self.bias = nn.Parameter(torch.zeros(heads))
        self.gate_norm = RMSNorm(config.hidden_size, config.rms_norm_eps) if hidden else None

    def forward(self, residual: Tensor, query: Tensor) -> Tensor:
        """Gate values (B, H, S) of the `residual` stream (B, S, d) entering the layer and its `query` (B, H, S, dh)."""
        if self.gate_norm is not None:
            return linear(self.gate_norm(residual), self.weight, self.bias).sigmoid().transpose(1, 2)
        score: Tensor = torch.linalg.vecdot(query, self.weight[:, None])
        return (score + self.bias[:, None]).sigmoid()
