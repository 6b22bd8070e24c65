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
    tables: RotaryTables
    """RoPE at slot t for query, key and value heads, (H + 2 Hkv, dh) each; value heads are turned by nothing."""
    visible: int | None = None
    """t + 1, or None when masks must say it."""


class SlotMaker:
    """Makes slots for the model of `config`, whose RoPE `tables` cover every slot."""

    def __init__(self, config: ModelConfig, tables: RotaryTables) -> None:
        self._tables = tables
        self._slots = torch.arange(len(tables.cos), device=tables.cos.device)
        self._turned = config.num_attention_heads + config.num_key_value_heads
        self._still = tables.cos.new_zeros(config.num_key_value_heads, tables.cos.shape[1])

    def tables(self, start: int, stop: int) -> RotaryTables:
        """RoPE at slots start..stop-1, (stop - start, dh) each."""
        return RotaryTables(self._tables.cos[start:stop], self._tables.sin[start:stop])

    def cut(self, slot: int) -> Slot:
        """Slot number `slot` by slicing: least work, shapes change from slot to slot."""
        return Slot(self._slots.narrow(0, slot, 1), self._by_head(self.tables(slot, slot + 1)), visible=slot + 1)

    def masked(self, index: Tensor) -> Slot:
        """The slot whose number is in `index` (1,) int64, by masks: shapes and work never change."""
        tables = RotaryTables(self._tables.cos.index_select(0, index), self._tables.sin.index_select(0, index))
        return Slot(index, self._by_head(tables))

    def _by_head(self, tables: RotaryTables) -> RotaryTables:
        cos, sin = (table.expand(self._turned, -1) for table in tables)
        return RotaryTables(torch.cat((cos, self._still + 1)), torch.cat((sin, self._still)))
