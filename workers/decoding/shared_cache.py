"""`kv_mode: share_first`: loop 1's keys and values of every slot, and the last `window` of each later loop.

One tensor holds both, so that all rows of a slot are written by one copy and attend by one
`scaled_dot_product_attention`: the places of a layer are

    [ ring of loop 2 | ... | ring of loop R | slot 0, slot 1, ... of loop 1 ]        each ring W = window places

with slot t of a later loop at place t % W of its ring. Every row queries once for the full context and, in later loops,
once more for its window; masks say which places a query sees, and keys and values are read once for all of them.
"""

from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from workers.config import ModelConfig
from workers.decoding.cache import Cache, SlotAttention, SlotView, byte_count, group, ungroup
from workers.decoding.memory import zeros
from workers.decoding.slot import Slot


class SharedCache(Cache):
    """Places for `batch_size` sequences of up to `max_length` slots."""

    def __init__(
        self, config: ModelConfig, batch_size: int, max_length: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.config = config
        self.max_length = max_length
        self.kv_heads = config.num_key_value_heads
        self.ring_size = min(config.window or 0, max_length)
        self.base = (config.num_loops - 1) * self.ring_size
        """The place of slot 0 of loop 1."""
        shape = (config.num_hidden_layers, batch_size, 2 * self.kv_heads, self.base + max_length, config.head_dim)
        self.places = zeros(shape, dtype, device)
        """(L, B, 2 Hkv, P, dh): key heads, then value heads."""
        self._passes: dict[tuple[int, int], Pass] = {}

    def view(self, slot: Slot, first: int, rows: int) -> SlotView:
        """See `Cache.view`."""
        if (first, rows) not in self._passes:
            self._passes[first, rows] = Pass(self, first, rows)
        return SharedView(self._passes[first, rows], slot)

    def write_chunk(self, layer: int, loop: int, key_value: Tensor, start: int) -> None:
        """See `Cache.write_chunk`."""
        stop = start + key_value.shape[2]
        if loop == 0:
            self.places[layer, :, :, self.base + start : self.base + stop] = key_value
        elif self.ring_size:
            slots = torch.arange(max(start, stop - self.ring_size), stop, device=key_value.device)
            self.places[layer].index_copy_(2, self._ring_places(loop, slots), key_value[:, :, -len(slots) :])

    def read_full(self, layer: int, loop: int, stop: int) -> Tensor:  # noqa: ARG002 (every loop reads loop 1's)
        """See `Cache.read_full`."""
        return self.places[layer, :, :, self.base : self.base + stop]

    def read_recent(self, layer: int, loop: int, start: int) -> Tensor:
        """See `Cache.read_recent`."""
        slots = torch.arange(max(0, start - (self.config.window or 0) + 1), start, device=self.places.device)
        return self.places[layer].index_select(2, self._ring_places(loop, slots))

    def forget(self, length: int) -> None:
        """See `Cache.forget`."""
        self.places[..., : self.base + length, :] = 0

    def used_bytes(self, length: int) -> int:
        """See `Cache.used_bytes`."""
        of_one = self.places[:, :1]
        used = byte_count(of_one[..., self.base : self.base + length, :])
        for ring in range(0, self.base, self.ring_size or 1):
            used += byte_count(of_one[..., ring : ring + min(length, self.ring_size), :])
        return used

    def _ring_places(self, loop: int, slots: Tensor) -> Tensor:
        return (loop - 1) * self.ring_size + slots % self.ring_size


class Pass:
    """What is the same at every slot for a pass of `rows` rows from loop `first`."""

    def __init__(self, cache: SharedCache, first: int, rows: int) -> None:
        self.cache = cache
        self.rows = rows
        self.plain = 1 if first == 0 else 0
        """Rows of loop 1, which has no window."""
        windows = [loop for loop in range(max(first, 1), first + rows) if cache.ring_size]
        self.windows = len(windows)
        self.written = slice(0, self.plain + self.windows)
        self._loops = ([0] if first == 0 else []) + windows

    @cached_property
    def offsets(self) -> Tensor:
        """(k,) int64: where the places of each written row begin."""
        ring = self.cache.ring_size
        begins = [self.cache.base if loop == 0 else (loop - 1) * ring for loop in self._loops]
        return torch.tensor(begins, device=self.cache.places.device, dtype=torch.int64)

    @cached_property
    def moduli(self) -> Tensor:
        """(k,) int64: how many places each written row has."""
        counts = [self.cache.max_length if loop == 0 else self.cache.ring_size for loop in self._loops]
        return torch.tensor(counts, device=self.cache.places.device, dtype=torch.int64)

    @cached_property
    def hidden(self) -> Tensor:
        """((n + n') H / Hkv, P): 0 where a query may look once the place is in use, -inf elsewhere."""
        cache = self.cache
        hidden = torch.full((self.rows + self.windows, cache.places.shape[3]), float("-inf"))
        hidden[: self.rows, cache.base :] = 0
        for row, loop in enumerate(loop for loop in self._loops if loop > 0):
            hidden[self.rows + row, (loop - 1) * cache.ring_size : loop * cache.ring_size] = 0
        per_head = cache.config.num_attention_heads // cache.kv_heads
        return hidden.repeat_interleave(per_head, 0).to(cache.places)

    @cached_property
    def order(self) -> Tensor:
        """(P,) int64: the first slot after which a place is in use."""
        cache = self.cache
        rings = torch.arange(cache.ring_size).repeat(cache.config.num_loops - 1)
        return torch.cat((rings, torch.arange(cache.max_length))).to(cache.places.device)


class SharedView(SlotView):
    """The places that one slot's rows see."""

    def __init__(self, kind: Pass, slot: Slot) -> None:
        cache = kind.cache
        self.kind = kind
        self.index = kind.offsets + slot.index % kind.moduli
        start = 0 if kind.windows else cache.base
        stop = None if slot.visible is None else cache.base + slot.visible
        keys, values = cache.places[:, :, :, start:stop].chunk(2, 2)
        self.keys, self.values = keys.unbind(), values.unbind()
        self.mask: Tensor | None = None
        if kind.windows or slot.visible is None:
            unused = kind.order[start:stop] > slot.index
            self.mask = kind.hidden[:, start:stop].masked_fill(unused, float("-inf"))[None, None]

    def attend(self, layer: int, query: Tensor, key_value: Tensor) -> SlotAttention:
        """See `SlotView.attend`."""
        kind, cache = self.kind, self.kind.cache
        if len(self.index):
            cache.places[layer].index_copy_(2, self.index, key_value[:, kind.written].transpose(1, 2))
        if kind.windows:
            query = torch.cat((query, query[:, kind.plain :]), 1)
        attended = scaled_dot_product_attention(
            group(query, cache.kv_heads), self.keys[layer], self.values[layer], attn_mask=self.mask
        )
        attended = ungroup(attended, query.shape[1])
        return SlotAttention(attended[:, : kind.rows], attended[:, kind.rows :] if kind.windows else None)
