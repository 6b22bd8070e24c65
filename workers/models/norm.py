"""Root mean square normalisation (arXiv 1910.07467) with statistics in float32 or wider."""

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
        return normalise(x, self.weight, self.eps)


def normalise(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm as a function: float64 stays, every other type is computed in float32 and cast back."""
    wide = x.dtype if x.dtype == torch.float64 else torch.float32
    return rms_norm(x.to(wide), weight.shape, weight.to(wide), eps).to(x.dtype)
