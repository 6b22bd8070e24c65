"""Every worker keeps a part of each parameter, its gradient and its optimizer state (FSDP2, arXiv 2304.11277).

A layer is gathered whenever a loop runs it, forward and backward, and let go of afterwards, so a worker holds one whole
layer at a time. A looped model gathers each layer R times as often as a plain one. Rank 0 gathers the whole model,
tensor by tensor, to evaluate and to save it: that much must fit beside its own part.
"""

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from workers.models import LoopedTransformer
from workers.parallel.ranks import Ranks
from workers.parallel.spread import Loss, LossFunction

_VIEWS = "FSDP2-wrapped module .* returned a view tensor"
"""A warning about in-place operations on a layer's keys and values; the model has none."""


class Sharded:
    """`model`, on any device, becomes this worker's part of it on `device`."""

    def __init__(self, model: LoopedTransformer, ranks: Ranks, device: torch.device) -> None:
        self.model, self.ranks = model, ranks
        self._device = device
        self._mesh = init_device_mesh(device.type, (ranks.count,))
        for layer in model.model.layers:
            fully_shard(layer, mesh=self._mesh)
        self._wrapped = Loss(model)
        fully_shard(self._wrapped, mesh=self._mesh)

    def loss(self, function: LossFunction, inputs: Tensor, targets: Tensor) -> Tensor:
        """Through the wrapper, which gathers what is needed."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_VIEWS)
            loss: Tensor = self._wrapped(function, inputs, targets)
        return loss

    def backward(self, loss: Tensor) -> None:
        """The wrapper gives the mean over workers, so the sum is asked of so many times the loss."""
        (loss * self.ranks.count).backward()  # type: ignore[no-untyped-call]

    def forward_and_backward(self, *, last: bool) -> AbstractContextManager[None]:  # noqa: ARG002 - all are alike
        """Gradients are exchanged after every micro-batch: to wait, each worker would have to hold them whole."""
        return nullcontext()

    def whole_model(self) -> LoopedTransformer | None:
        """A plain model on rank 0, of gathered tensors."""
        gathered = {name: _gathered(tensor) for name, tensor in self.model.state_dict().items()}
        if self.ranks.rank > 0:
            return None
        whole = LoopedTransformer(self.model.config, device="meta")
        whole.load_state_dict(gathered, assign=True)
        return whole

    def whole(self, tensor: Tensor) -> Tensor | None:
        """Gathered."""
        gathered = _gathered(tensor)
        return gathered.cpu().contiguous() if self.ranks.rank == 0 else None

    def own(self, parameter: Any, whole: Tensor) -> Tensor:
        """Its part; a single number, such as a count of steps, is everybody's."""
        whole = whole.to(self._device)
        if whole.shape != parameter.shape:
            return whole
        return distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Every worker cuts its part out of the whole, which it has read itself."""
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(self.own(parameter, weights[name]))


def _gathered(tensor: Tensor) -> Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach()
