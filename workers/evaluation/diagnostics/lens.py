"""The logit lens: what each loop would predict if it were the last one, p(r) = softmax(Head(RMSNorm(y(r)))).

Only slots with a label count: what a model says where it was never asked means nothing. Logits are held for a block of
slots and two loops at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import kl_div

from workers.data import IGNORED
from workers.models import LoopedTransformer

BLOCK_LOGITS = 2**22
"""Logits of one loop held at once."""


@dataclass(frozen=True)
class Lens:
    """Per loop and labelled slot, (R, P), float64, on the CPU."""

    rows: Tensor
    """(P,): the sequence that each slot belongs to."""
    loss: Tensor
    """-log p(r) of the true token, in nats."""
    rank: Tensor
    """Position of the true token among all, by probability; 1 is first."""
    entropy: Tensor
    """Of p(r), in nats."""
    change: Tensor
    """(R - 1, P): KL(p(r) || p(r-1)) for loops 2..R, in nats."""


def look(model: LoopedTransformer, normalised: Sequence[Tensor], targets: Tensor) -> Lens:
    """The lens of every loop, from their final-normalised states (B, S, d) and the labels (B, S)."""
    rows, slots = torch.nonzero(targets != IGNORED, as_tuple=True)
    size = max(1, BLOCK_LOGITS // model.config.vocab_size)
    places = zip(torch.split(rows, size), torch.split(slots, size), strict=True)
    blocks = [_look([state[r, s] for state in normalised], targets[r, s], model) for r, s in places]
    columns = zip(*blocks, strict=True)
    return Lens(rows.cpu(), *(torch.cat(column, -1).double().cpu() for column in columns))


def _look(states: list[Tensor], labels: Tensor, model: LoopedTransformer) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    loss, rank, entropy, change = [], [], [], []
    before: Tensor | None = None
    for state in states:
        logits = model.head(state)
        logs = (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)
        true = logs.gather(-1, labels[:, None])
        loss.append(-true[:, 0])
        rank.append(1 + (logs > true).sum(-1))
        entropy.append(torch.special.entr(logs.exp()).sum(-1))
        if before is not None:
            change.append(kl_div(before, logs, reduction="none", log_target=True).sum(-1))
        before = logs
    empty = labels.new_zeros(0, len(labels), dtype=torch.float64)
    return torch.stack(loss), torch.stack(rank), torch.stack(entropy), torch.stack(change) if change else empty
