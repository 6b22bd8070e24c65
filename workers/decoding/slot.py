"""Where one new token goes: slot t as tensors, so that one recorded CUDA graph serves every slot."""

from dataclasses import dataclass

import torch
from torch import Tensor

from workers.config import ModelConfig
from workers.models.rotary import RotaryTables


@dataclass(frozen=True)
class Slot:
    """Slot t. Either `visible` cuts the caches to what is in use, or shapes are static and masks hide the rest."""

    index: Tensor
    """(1,) int64: t."""
    place: Tensor
    """(1,) int64: t % W, the place in rings of W places."""
    tables: RotaryTables
    """RoPE at slot t for query, key and value heads, (H + 2 Hkv, dh) each; value heads are turned by nothing."""
    visible: int | None = None
    """t + 1, or None when the masks say it."""
    full_mask: Tensor | None = None
    """(1, 1, 1, S) bool: slots 0..t."""
    window_mask: Tensor | None = None
    """(1, 1, 1, W) bool: ring places in use; without rings, (1, 1, 1, S): the last `window` slots."""


class SlotMaker:
    """Makes slots for the model of `config`, whose RoPE `tables` cover every slot, and rings of `ring_size` places."""

    def __init__(self, config: ModelConfig, tables: RotaryTables, ring_size: int) -> None:
        self.ring_size = ring_size
        self.window = config.window or 0
        self.slots = torch.arange(len(tables.cos), device=tables.cos.device)
        self._tables = tables
        self._turned = config.num_attention_heads + config.num_key_value_heads
        self._unturned = config.num_key_value_heads

    def tables(self, start: int, stop: int) -> RotaryTables:
        """RoPE at slots start..stop-1, (stop - start, dh) each."""
        return RotaryTables(self._tables.cos[start:stop], self._tables.sin[start:stop])

    def cut(self, slot: int) -> Slot:
        """Slot number `slot` by slicing: least work, shapes change from slot to slot."""
        index = self.slots.narrow(0, slot, 1)
        place = self.slots.narrow(0, slot % self.ring_size, 1) if self.ring_size else index
        return Slot(index, place, self._by_head(self.tables(slot, slot + 1)), visible=slot + 1)

    def masked(self, index: Tensor) -> Slot:
        """The slot whose number is in `index` (1,) int64, by masks: shapes and work never change."""
        tables = RotaryTables(self._tables.cos.index_select(0, index), self._tables.sin.index_select(0, index))
        full = self.slots <= index
        if self.ring_size:
            window = full[: self.ring_size]
            place = index % self.ring_size
        else:
            window = full & (self.slots > index - self.window)
            place = index
        full, window = full[None, None, None], window[None, None, None]
        return Slot(index, place, self._by_head(tables), full_mask=full, window_mask=window)

    def _by_head(self, tables: RotaryTables) -> RotaryTables:
        """Tables of one slot (1, dh) for query, key and value heads (H + 2 Hkv, dh); values are turned by nothing."""
        cos, sin = (table.expand(self._turned, -1) for table in tables)
        still = tables.cos.new_zeros(self._unturned, tables.cos.shape[1])
        return RotaryTables(torch.cat((cos, still + 1)), torch.cat((sin, still)))
