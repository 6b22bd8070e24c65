"""How the training of one model is spread over workers: one that has it whole, or several that each have it whole.

`workers.parallel.sharded` is the third way. The optimizer of each worker holds the parameters of `Spread.model`.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from workers.models import LoopedTransformer
from workers.parallel.ranks import ALONE, Ranks

LossFunction = Callable[[LoopedTransformer, Tensor, Tensor], Tensor]
"""Of a model, inputs (B, S) and targets (B, S): the summed loss."""


class Spread(Protocol):
    """A model in training. What gathers is called by every worker, in the same order."""

    model: LoopedTransformer
    ranks: Ranks

    def loss(self, function: LossFunction, inputs: Tensor, targets: Tensor) -> Tensor:
        """`function` of the model and this worker's rows."""

    def backward(self, loss: Tensor) -> None:
        """Add up the gradients of every worker's `loss`."""

    def forward_and_backward(self, *, last: bool) -> AbstractContextManager[None]:
        """Around one `loss` and `backward`; after the `last` one of a step the gradients are everybody's."""

    def whole_model(self) -> LoopedTransformer | None:
        """The whole model on rank 0, to read only; None on the others. Gathers."""

    def whole(self, tensor: Tensor) -> Tensor | None:
        """A parameter, or optimizer state of its shape, whole and on the CPU of rank 0; None on the others. Gathers."""

    def own(self, parameter: Tensor, whole: Tensor) -> Tensor:
        """This worker's part of a whole tensor of a parameter's shape, where the parameter is."""

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Put whole weights, one for every parameter, into the model."""


class Whole:
    """One worker that has the model to itself."""

    def __init__(self, model: LoopedTransformer, ranks: Ranks = ALONE) -> None:
        self.model, self.ranks = model, ranks

    def loss(self, function: LossFunction, inputs: Tensor, targets: Tensor) -> Tensor:
        """Plainly."""
        return function(self.model, inputs, targets)

    def backward(self, loss: Tensor) -> None:
        """Plainly."""
        loss.backward()  # type: ignore[no-untyped-call]

    def forward_and_backward(self, *, last: bool) -> AbstractContextManager[None]:  # noqa: ARG002 - all are alike
        """Nothing to be done."""
        return nullcontext()

    def whole_model(self) -> LoopedTransformer | None:
        """The model itself."""
        return self.model if self.ranks.rank == 0 else None

    def whole(self, tensor: Tensor) -> Tensor | None:
        """A copy."""
        return tensor.detach().cpu().contiguous() if self.ranks.rank == 0 else None

    def own(self, parameter: Tensor, whole: Tensor) -> Tensor:
        """All of it."""
        return whole.to(parameter.device)

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Every worker all of them."""
        self.model.load_state_dict(weights)


class Loss(nn.Module):
    """What is differentiated: a module around the model, whose forward pass torch's wrappers can follow."""

    def __init__(self, model: LoopedTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: LossFunction, inputs: Tensor, targets: Tensor) -> Tensor:
        """`function` of the model."""
        return function(self.model, inputs, targets)


class Replicated(Whole):
    """Every worker has the whole model; gradients are added up while backward runs (DDP, arXiv 2006.15704)."""

    def __init__(self, model: LoopedTransformer, ranks: Ranks) -> None:
        super().__init__(model, ranks)
        self._wrapped = DistributedDataParallel(Loss(model))

    def loss(self, function: LossFunction, inputs: Tensor, targets: Tensor) -> Tensor:
        """Through the wrapper, which prepares the exchange."""
        loss: Tensor = self._wrapped(function, inputs, targets)
        return loss

    def backward(self, loss: Tensor) -> None:
        """The wrapper gives the mean over workers, so the sum is asked of so many times the loss."""
        (loss * self.ranks.count).backward()  # type: ignore[no-untyped-call]

    def forward_and_backward(self, *, last: bool) -> AbstractContextManager[None]:
        """Micro-batches before the last one add up on each worker by itself."""
        return nullcontext() if last else self._wrapped.no_sync()

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """In place: the wrapper goes on with the same parameters."""
        with torch.no_grad():
            super().take(weights)
