"""The gate in decoding form: `workers.models.gate` with its polarity resolved, free of modules and autograd."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm

from workers.models.attention import Attention


@dataclass(frozen=True)
class GateWeights:
    """A learned gate in the direction of the full context: a gate of the window has its weight and bias negated."""

    weight: Tensor
    """(H, dh) for the query, (H, d) for the residual stream."""
    bias: Tensor
    """(H)."""
    norm: Tensor | None
    """(d): the gate's own RMSNorm of the residual stream; None when it reads the query."""
    eps: float

    def share(self, residual: Tensor, query: Tensor) -> Tensor:
        """Share of the full context (B, n, H, 1) for rows `residual` (B, n, d) and `query` (B, n, H, dh)."""
        if self.norm is None:
            score = (query * self.weight).sum(-1, keepdim=True)
            return score.add_(self.bias[:, None]).sigmoid_()
        normalised = rms_norm(residual, self.norm.shape, self.norm, self.eps)
        return linear(normalised, self.weight, self.bias).sigmoid_()[..., None]


@dataclass(frozen=True)
class Mixer:
    """Mixes full-context and windowed attention by a gate, or by the fixed share when there is none."""

    gate: GateWeights | None
    fixed_share: float

    def mix(self, residual: Tensor, query: Tensor, local: Tensor, full: Tensor) -> Tensor:
        """share * full + (1 - share) * local, heads (B, n, H, dh), for rows `residual` (B, n, d)."""
        share = self.fixed_share if self.gate is None else self.gate.share(residual, query)
        return torch.lerp(local, full, share)


def mixer_of(attention: Attention) -> Mixer:
    """The mixer of a layer's attention; a snapshot of its gate."""
    gate = attention.plt_gate
    if gate is None:
        return Mixer(None, attention.fixed_share)
    sign = 1 if attention.config.gate_polarity == "global" else -1
    norm = None if gate.gate_norm is None else gate.gate_norm.weight.detach().clone()
    weights = GateWeights(sign * gate.weight.detach(), sign * gate.bias.detach(), norm, attention.config.rms_norm_eps)
    return Mixer(weights, attention.fixed_share)
