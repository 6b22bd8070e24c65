"""A decode step recorded once as a CUDA graph: replaying it costs one launch instead of hundreds."""

from collections.abc import Callable

import torch
from torch import Tensor

WARM_UP_STEPS = 3
"""Runs before recording, so that lazy initialisation and workspace allocation are not recorded."""


class StepGraph:
    """Replays `step(ids, t)` on fixed buffers: ids (B,) int64, slot t (1,) int64 -> logits (B, V).

    `carry` is the only state that a step changes other than by writing slot t again; it is restored after recording.
    """

    def __init__(self, step: Callable[[Tensor, Tensor], Tensor], batch_size: int, carry: Tensor) -> None:
        self.step = step
        self.carry = carry
        self.ids = torch.zeros(batch_size, dtype=torch.int64, device=carry.device)
        self.slot = torch.zeros(1, dtype=torch.int64, device=carry.device)
        self._recorded: tuple[torch.cuda.CUDAGraph, Tensor] | None = None

    def __call__(self, ids: Tensor, slot: int) -> Tensor:
        """One step at slot number `slot`; nothing waits for the device."""
        self.ids.copy_(ids)
        self.slot.fill_(slot)
        if self._recorded is None:
            self._recorded = self._record()
        graph, logits = self._recorded
        graph.replay()
        return logits.clone()

    def _record(self) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        before = self.carry.clone()
        side = torch.cuda.Stream(self.carry.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.carry.device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_STEPS):
                self.step(self.ids, self.slot)
        torch.cuda.current_stream(self.carry.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = self.step(self.ids, self.slot)
        self.carry.copy_(before)
        return graph, logits
