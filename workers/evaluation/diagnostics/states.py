"""Measures of the states that loops hand on: how far a loop moves them, and how many directions they fill.

States are h(r), (B, S, d); h(0) is the embedding E. All results are float64, one per sequence (B,). Definitions are
LoopCoder-v2's (arXiv 2606.18023), averaged over the slots of a sequence.
"""

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import cosine_similarity, pad

NO_UPDATE = 1e-5
"""Of a state's length; float32 rounds at about a tenth of it."""


def step_size(now: Tensor, before: Tensor) -> Tensor:
    """|| h(r) - h(r-1) ||: how much a loop changes."""
    lengths: Tensor = vector_norm(now.double() - before.double(), dim=-1)
    return lengths.mean(-1)


def update_cosine(now: Tensor, before: Tensor, earlier: Tensor) -> Tensor:
    """cos(h(r) - h(r-1), h(r-1) - h(r-2)): negative where loops undo each other.

    An update that is shorter than `NO_UPDATE` of its state counts as none, with cosine 0: with shared keys the first
    slot of a shifted loop computes what loop 1 computed there, and the difference is rounding.
    """
    latest, previous = now.double() - before.double(), before.double() - earlier.double()
    still = _shorter(latest, before) | _shorter(previous, before)
    return cosine_similarity(latest, previous, dim=-1).masked_fill(still, 0).mean(-1)


def _shorter(update: Tensor, state: Tensor) -> Tensor:
    lengths: Tensor = vector_norm(update, dim=-1)
    return torch.lt(lengths, NO_UPDATE * vector_norm(state.double(), dim=-1))


def offset(handed_on: Tensor) -> Tensor:
    """|| h_t - h_{t-1} || with h_{-1} = 0: what cross-loop parallelism swaps in for a slot's own state."""
    shifted = pad(handed_on, (0, 0, 1, 0))[:, :-1]
    return step_size(handed_on, shifted)


def effective_rank(rows: Tensor) -> Tensor:
    """exp of the entropy of the singular values of `rows` (..., n, m), normalised to sum 1; gives (...).

    The singular values are square roots of the eigenvalues of the smaller Gram matrix, in float64, so that those that
    are zero come out below 1e-7 of the largest. A matrix of zeros has rank 1.
    """
    wide = rows.double()
    if wide.shape[-2] > wide.shape[-1]:
        wide = wide.transpose(-1, -2)
    singular: Tensor = torch.linalg.eigvalsh(wide @ wide.transpose(-1, -2)).clamp_min(0).sqrt()
    shares = singular / singular.sum(-1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    rank: Tensor = torch.special.entr(shares).sum(-1).exp()
    return rank


def rms_normalised(states: Tensor, eps: float) -> Tensor:
    """States over their root mean square, without any weight; float64."""
    wide = states.double()
    normalised: Tensor = wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt()
    return normalised
