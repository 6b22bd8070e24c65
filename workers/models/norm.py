"""Root mean square normalisation (arXiv 1910.07467). PyTorch keeps its statistics in float32 or wider."""

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, whose size is `width`."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x` (..., width); the type of `x` is kept."""
        return rms_norm(x, self.weight.shape, self.weight, self.eps)
