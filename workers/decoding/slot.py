"""Where one new token goes: slot t as tensors, so that one recorded CUDA graph serves every slot."""

from dataclasses import dataclass

import torch
from torch import Tensor

from workers.models.rotary import RotaryTables


@dataclass(frozen=True)
class Slot:
    """Slot t. Either `visible` cuts the caches to what is in use, or shapes are static and masks hide the rest."""

    index: Tensor
    """(1,) int64: t."""
    place: Tensor
    """(1,) int64: t % W, the place in rings of W places."""
    tables: RotaryTables
    """RoPE at slot t, (1, dh) each."""
    visible: int | None = None
    """t + 1, or None when the masks say it."""
    full_mask: Tensor | None = None
    """(1, 1, 1, S) bool: slots 0..t."""
    window_mask: Tensor | None = None
    """(1, 1, 1, W) bool: ring places in use; without rings, (1, 1, 1, S): the last `window` slots."""


class SlotMaker:
    """Makes slots for caches of `max_length` slots, rings of `ring_size` places (0: no rings) and a `window`."""

    def __init__(self, tables: RotaryTables, max_length: int, ring_size: int, window: int) -> None:
        self.tables = tables
        self.ring_size = ring_size
        self.window = window
        self.slots = torch.arange(max_length, device=tables.cos.device)

    def cut(self, slot: int) -> Slot:
        """Slot number `slot` by slicing: least work, shapes change from slot to slot."""
        index = self.slots[slot : slot + 1]
        place = self.slots[slot % self.ring_size :][:1] if self.ring_size else index
        tables = RotaryTables(self.tables.cos[slot : slot + 1], self.tables.sin[slot : slot + 1])
        return Slot(index, place, tables, visible=slot + 1)

    def masked(self, index: Tensor) -> Slot:
        """The slot whose number is in `index` (1,) int64, by masks: shapes and work never change."""
        tables = RotaryTables(self.tables.cos.index_select(0, index), self.tables.sin.index_select(0, index))
        full = self.slots <= index
        if self.ring_size:
            window = full[: self.ring_size]
            place = index % self.ring_size
        else:
            window = full & (self.slots > index - self.window)
            place = index
        return Slot(index, place, tables, full_mask=full[None, None, None], window_mask=window[None, None, None])
