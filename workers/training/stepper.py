"""One optimizer step: forward and backward over the batch, clipped gradients, AdamW (arXiv 1711.05101).

The loss is cross-entropy of the last loop, averaged over the labelled slots of the whole batch, so micro-batches give
the gradients of the batch at once, and so do several workers that have some of its rows each. Decay applies to weight
matrices only: not to embeddings, norms or gate biases.
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from workers.config import TrainConfig
from workers.data import IGNORED, Batch
from workers.models import LoopedTransformer
from workers.parallel.spread import LossFunction, Spread, Whole
from workers.training.plan import Plan


def summed_loss(model: LoopedTransformer, inputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in nats, summed over the labelled slots of `targets` (B, S)."""
    logits = model(inputs).logits.float().flatten(0, 1)
    return cross_entropy(logits, targets.flatten(), ignore_index=IGNORED, reduction="sum")


def make_optimizer(model: LoopedTransformer, config: TrainConfig) -> torch.optim.AdamW:
    """Fused AdamW with two groups: matrices that decay, and everything else."""
    decayed: list[Tensor] = []
    kept: list[Tensor] = []
    for name, parameter in model.named_parameters():
        (decayed if parameter.dim() >= 2 and "embed_tokens" not in name else kept).append(parameter)
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), fused=True)


class Stepper:
    """Trains `model` in place, one batch at a time, together with the other workers that `spread` spreads it over."""

    def __init__(self, model: LoopedTransformer, config: TrainConfig, plan: Plan, spread: Spread | None = None) -> None:
        self.model = model
        self._spread = spread or Whole(model)
        self.optimizer = make_optimizer(model, config)
        self.device = next(model.parameters()).device
        self._config = config
        self.follow(plan)

    def follow(self, plan: Plan) -> None:
        """Compute as `plan` says from now on; the optimizer goes on from where it is."""
        self.plan = plan
        self._loss = _compiled(summed_loss) if plan.compile else summed_loss

    @property
    def micro_batch_size(self) -> int:
        """Sequences per forward pass."""
        rows = self._config.batch_size // self._spread.ranks.count
        return min(rows, self.plan.micro_batch_size or self._config.micro_batch_size or rows)

    def step(self, batch: Batch, lr: float) -> Tensor:
        """Train on this worker's rows of a batch; gives their part of its mean loss in nats per labelled slot.

        The loss is still on the device. The parts of all workers add up to the mean.
        """
        loss = self.accumulate_gradients(batch)
        clip_grad_norm_(self.model.parameters(), self._config.grad_clip, foreach=True)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def accumulate_gradients(self, batch: Batch) -> Tensor:
        """Forward and backward, one micro-batch after the other; this worker's part of the mean loss of the batch."""
        labelled = max(1, self._spread.ranks.total(int((batch.targets != IGNORED).sum())))
        inputs, targets = self._to_device(batch)
        size = self.micro_batch_size
        total = torch.zeros((), device=self.device)
        for start in range(0, len(inputs), size):
            rows = slice(start, start + size)
            with self._spread.forward_and_backward(last=start + size >= len(inputs)):
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.plan.precision == "bfloat16"):
                    loss = self._spread.loss(self._loss, inputs[rows], targets[rows]) / labelled
                self._spread.backward(loss)
            total += loss.detach()
        return total

    def _to_device(self, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs, targets = torch.from_numpy(batch.inputs), torch.from_numpy(batch.targets)
        if self.device.type == "cpu":
            return inputs, targets
        return (
            inputs.pin_memory().to(self.device, non_blocking=True),
            targets.pin_memory().to(self.device, non_blocking=True),
        )


def _compiled(function: LossFunction) -> LossFunction:
    """The function compiled for one set of shapes, free of what earlier models in this process left behind."""
    torch.compiler.reset()
    return torch.compile(function, dynamic=False)
