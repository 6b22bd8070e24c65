"""The state of a batch of sequences being decoded, allocated once.

    full    keys and values of every slot: loop 1's, or every loop's with `kv_mode: per_loop`
    ring    the last `window` keys and values of each later loop, slot t at place t % W (share_first with a window)
    carry   h(1)..h(R-1) of the previous slot, with CLP; zero before the first slot

Shapes: L layers, B sequences, C loops with a full cache (1 or R), R loops, S slots at most, W ring places, Hkv key
heads, dh head width. Keys are stored after RoPE, so the order of ring places does not matter to attention.
"""

import torch
from torch import Tensor

from workers.config import ModelConfig
from workers.decoding.slot import Slot


class Caches:
    """Preallocated caches for `batch_size` sequences of equal length, up to `max_length` slots."""

    def __init__(
        self, config: ModelConfig, batch_size: int, max_length: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.config = config
        later = config.num_loops - 1
        self.own = config.kv_mode == "per_loop"
        ring_loops = later if config.local == "swa" and not self.own else 0

        def allocate(loops: int, places: int) -> Tensor:
            heads, width = config.num_key_value_heads, config.head_dim
            shape = (2, config.num_hidden_layers, batch_size, loops, heads, places, width)
            return torch.zeros(shape, device=device, dtype=dtype)

        self.full = allocate(config.num_loops if self.own else 1, max_length)
        """(2, L, B, C, Hkv, S, dh): keys, then values."""
        self.ring = allocate(ring_loops, min(config.window or 0, max_length)) if ring_loops else None
        """(2, L, B, R-1, Hkv, W, dh), or None."""
        self.carry = torch.zeros(batch_size, later if config.clp else 0, config.hidden_size, device=device, dtype=dtype)
        """(B, R-1, d); no rows without CLP."""

    @property
    def ring_size(self) -> int:
        """W, 0 without rings."""
        return 0 if self.ring is None else self.ring.shape[-2]

    def write(self, layer: int, key: Tensor, value: Tensor, slot: Slot, first: int) -> None:
        """Keep the keys and values (B, n, Hkv, dh) of loops first..first+n-1 at `slot`, where they are read later."""
        stop = first + key.shape[1]
        for kind, rows in enumerate((key[:, :, :, None], value[:, :, :, None])):
            if self.own:
                self.full[kind, layer, :, first:stop].index_copy_(3, slot.index, rows)
            elif first == 0:
                self.full[kind, layer].index_copy_(3, slot.index, rows[:, :1])
            if self.ring is not None and stop > 1:
                later = max(first, 1)
                self.ring[kind, layer, :, later - 1 : stop - 1].index_copy_(3, slot.place, rows[:, later - first :])

    def read_full(self, layer: int, slot: Slot) -> tuple[Tensor, Tensor]:
        """Keys and values (B, C, Hkv, places, dh) for full-context attention at `slot`."""
        seen = self.full[:, layer, ..., : slot.visible, :]
        return seen[0], seen[1]

    def read_window(self, layer: int, slot: Slot) -> tuple[Tensor, Tensor]:
        """Keys and values (B, R-1, Hkv, places, dh) of loops 2..R for windowed attention at `slot`."""
        if self.ring is not None:
            seen = self.ring[:, layer, ..., : slot.visible, :]
        else:
            start = 0 if slot.visible is None else max(0, slot.visible - (self.config.window or 0))
            seen = self.full[:, layer, :, 1:, :, start : slot.visible, :]
        return seen[0], seen[1]

    def write_chunk(self, layer: int, loop: int, key: Tensor, value: Tensor, start: int) -> None:
        """Keep the keys and values (B, Hkv, T, dh) of one loop from slot `start` on, where they are read later."""
        stop = start + key.shape[2]
        for kind, chunk in enumerate((key, value)):
            if self.own or loop == 0:
                self.full[kind, layer, :, loop, :, start:stop] = chunk
            if self.ring is not None and loop > 0:
                kept = torch.arange(max(start, stop - self.ring_size), stop, device=chunk.device)
                self.ring[kind, layer, :, loop - 1].index_copy_(2, kept % self.ring_size, chunk[:, :, -len(kept) :])

    def read_full_chunk(self, layer: int, loop: int, stop: int) -> tuple[Tensor, Tensor]:
        """Keys and values (B, Hkv, stop, dh) of slots 0..stop-1 for full-context attention of `loop`."""
        seen = self.full[:, layer, :, loop if self.own else 0, :, :stop]
        return seen[0], seen[1]

    def read_recent(self, layer: int, loop: int, start: int) -> tuple[Tensor, Tensor]:
        """Keys and values (B, Hkv, p, dh) of a later loop's own p = min(start, window - 1) slots before `start`."""
        slots = torch.arange(max(0, start - (self.config.window or 0) + 1), start, device=self.full.device)
        if self.ring is None:
            seen = self.full[:, layer, :, loop].index_select(3, slots)
        else:
            seen = self.ring[:, layer, :, loop - 1].index_select(3, slots % self.ring_size)
        return seen[0], seen[1]

    def used_bytes(self, length: int) -> int:
        """Bytes of keys and values that one sequence of `length` slots occupies, counted from the tensors."""
        used = _bytes(self.full[:, :, :1, :, :, :length])
        return used if self.ring is None else used + _bytes(self.ring[:, :, :1, :, :, :length])

    def allocated_bytes(self) -> int:
        """Bytes of keys and values allocated for one sequence."""
        return self.used_bytes(self.full.shape[-2])

    def carry_bytes(self) -> int:
        """Bytes of carried hidden vectors of one sequence."""
        return _bytes(self.carry[:1])

    def reset(self) -> None:
        """Forget every sequence: clear the carried state; keys and values of unused slots are never read."""
        self.carry.zero_()


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
