"""The state of a batch of sequences being decoded, allocated once.

    full    keys and values of every slot: loop 1's, or every loop's with `kv_mode: per_loop`
    ring    the last `window` keys and values of each later loop, slot t at place t % W (share_first with a window)
    carry   h(1)..h(R-1) of the previous slot, with CLP; zero before the first slot

Shapes: L layers, B sequences, C loops with a full cache (1 or R), R loops, S slots at most, W ring places, Hkv key
heads, dh head width. Keys are stored after RoPE, so the order of ring places does not matter to attention.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from workers.config import ModelConfig
from workers.decoding.slot import Slot


class Seen(NamedTuple):
    """What a slot attends to in every layer: L tensors each, (B, C, Hkv, places, dh)."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]


class Caches:
    """Preallocated caches for `batch_size` sequences of equal length, up to `max_length` slots."""

    def __init__(
        self, config: ModelConfig, batch_size: int, max_length: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.config = config
        self.kv_heads = config.num_key_value_heads
        self.window = config.window or 0
        later = config.num_loops - 1
        self.own = config.kv_mode == "per_loop"
        ring_loops = later if config.local == "swa" and not self.own else 0

        def allocate(loops: int, places: int) -> Tensor:
            shape = (config.num_hidden_layers, batch_size, loops, 2 * self.kv_heads, places, config.head_dim)
            return torch.zeros(shape, device=device, dtype=dtype)

        self.full = allocate(config.num_loops if self.own else 1, max_length)
        """(L, B, C, 2 Hkv, S, dh): key heads, then value heads."""
        self.ring = allocate(ring_loops, min(self.window, max_length)) if ring_loops else None
        """(L, B, R-1, 2 Hkv, W, dh), or None."""
        self.carry = torch.zeros(batch_size, later if config.clp else 0, config.hidden_size, device=device, dtype=dtype)
        """(B, R-1, d); no rows without CLP."""

    @property
    def ring_size(self) -> int:
        """W, 0 without rings."""
        return 0 if self.ring is None else self.ring.shape[-2]

    def write(self, layer: int, key_value: Tensor, slot: Slot, first: int) -> None:
        """Keep what is read later of the key and value heads (B, n, 2 Hkv, dh) of loops first..first+n-1 at `slot`."""
        stop, key_value = first + key_value.shape[1], key_value[:, :, :, None]
        if self.own:
            self.full[layer, :, first:stop].index_copy_(3, slot.index, key_value)
        elif first == 0:
            self.full[layer].index_copy_(3, slot.index, key_value[:, :1])
        if self.ring is not None and stop > 1:
            later = max(first, 1)
            self.ring[layer, :, later - 1 : stop - 1].index_copy_(3, slot.place, key_value[:, later - first :])

    def see_full(self, slot: Slot) -> Seen:
        """Views for full-context attention at `slot`, over the C loops that have a full cache."""
        return self._see(self.full[..., : slot.visible, :])

    def see_window(self, slot: Slot) -> Seen | None:
        """Views of loops 2..R for windowed attention at `slot`; None when the model has no window."""
        if self.config.local == "none":
            return None
        if self.ring is not None:
            return self._see(self.ring[..., : slot.visible, :])
        start = 0 if slot.visible is None else max(0, slot.visible - self.window)
        return self._see(self.full[:, :, 1:, :, start : slot.visible])

    def _see(self, cache: Tensor) -> Seen:
        keys, values = cache.chunk(2, 3)
        return Seen(keys.unbind(), values.unbind())

    def write_chunk(self, layer: int, loop: int, key_value: Tensor, start: int) -> None:
        """Keep what is read later of one loop's key and value heads (B, 2 Hkv, T, dh) at slots start..start+T-1."""
        stop = start + key_value.shape[2]
        if self.own or loop == 0:
            self.full[layer, :, loop, :, start:stop] = key_value
        if self.ring is not None and loop > 0:
            slots = torch.arange(max(start, stop - self.ring_size), stop, device=key_value.device)
            self.ring[layer, :, loop - 1].index_copy_(2, slots % self.ring_size, key_value[:, :, -len(slots) :])

    def read_chunk(self, layer: int, loop: int, stop: int) -> Tensor:
        """Key and value heads (B, 2 Hkv, stop, dh) of slots 0..stop-1 for full-context attention of `loop`."""
        return self.full[layer, :, loop if self.own else 0, :, :stop]

    def read_recent(self, layer: int, loop: int, start: int) -> Tensor:
        """Key and value heads (B, 2 Hkv, p, dh) of a later loop's own p = min(start, window-1) slots before `start`."""
        slots = torch.arange(max(0, start - self.window + 1), start, device=self.full.device)
        if self.ring is None:
            return self.full[layer, :, loop].index_select(2, slots)
        return self.ring[layer, :, loop - 1].index_select(2, slots % self.ring_size)

    def used_bytes(self, length: int) -> int:
        """Bytes of keys and values that one sequence of `length` slots occupies, counted from the tensors."""
        used = _bytes(self.full[:, :1, ..., :length, :])
        return used if self.ring is None else used + _bytes(self.ring[:, :1, ..., :length, :])

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
