"""`kv_mode: per_loop`: every loop keeps its own keys and values of every slot; also the plain transformer (R = 1).

A window, if there is one, is the tail of a loop's own keys and values.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from workers.config import ModelConfig
from workers.decoding.cache import Cache, SlotAttention, SlotView, byte_count, group, ungroup
from workers.decoding.memory import zeros
from workers.decoding.slot import Slot


class OwnCache(Cache):
    """Slots for `batch_size` sequences of up to `max_length` slots, in R loops."""

    def __init__(
        self, config: ModelConfig, batch_size: int, max_length: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.kv_heads = config.num_key_value_heads
        self.window = config.window or 0
        self.slots = torch.arange(max_length, device=device)
        heads = (config.num_loops, 2 * self.kv_heads)
        shape = (config.num_hidden_layers, batch_size, *heads, max_length, config.head_dim)
        self.places = zeros(shape, dtype, device)
        """(L, B, R, 2 Hkv, S, dh): key heads, then value heads."""

    def view(self, slot: Slot, first: int, rows: int) -> SlotView:
        """See `Cache.view`."""
        return OwnView(self, slot, first, rows)

    def write_chunk(self, layer: int, loop: int, key_value: Tensor, start: int) -> None:
        """See `Cache.write_chunk`."""
        self.places[layer, :, loop, :, start : start + key_value.shape[2]] = key_value

    def read_full(self, layer: int, loop: int, stop: int) -> Tensor:
        """See `Cache.read_full`."""
        return self.places[layer, :, loop, :, :stop]

    def read_recent(self, layer: int, loop: int, start: int) -> Tensor:
        """See `Cache.read_recent`."""
        return self.places[layer, :, loop, :, max(0, start - self.window + 1) : start]

    def forget(self, length: int) -> None:
        """See `Cache.forget`."""
        self.places[..., :length, :] = 0

    def used_bytes(self, length: int) -> int:
        """See `Cache.used_bytes`."""
        return byte_count(self.places[:, :1, :, :, :length])


class OwnView(SlotView):
    """The slots that one slot's rows see, each row those of its loop."""

    def __init__(self, cache: OwnCache, slot: Slot, first: int, rows: int) -> None:
        self.cache = cache
        self.slot = slot
        self.places = cache.places[:, :, first : first + rows]
        self.plain = 1 if first == 0 else 0
        """Rows of loop 1, which has no window."""
        self.windowed = cache.window > 0 and rows > self.plain
        self.masks: tuple[Tensor | None, Tensor | None] = (None, None)
        if slot.visible is None:
            full = cache.slots <= slot.index
            window = full & (cache.slots > slot.index - cache.window)
            self.masks = full[None, None, None], window[None, None, None]

    def attend(self, layer: int, query: Tensor, key_value: Tensor) -> SlotAttention:
        """See `SlotView.attend`."""
        places, visible = self.places[layer], self.slot.visible
        places.index_copy_(3, self.slot.index, key_value[:, :, :, None])
        full = self._attend(query, places[:, :, :, :visible], self.masks[0])
        if not self.windowed:
            return SlotAttention(full, None)
        start = 0 if visible is None else max(0, visible - self.cache.window)
        recent = places[:, self.plain :, :, start:visible]
        return SlotAttention(full, self._attend(query[:, self.plain :], recent, self.masks[1]))

    def _attend(self, query: Tensor, places: Tensor, mask: Tensor | None) -> Tensor:
        """Attention (B, n, H, dh) of every row over the places (B, n, 2 Hkv, p, dh) of its loop."""
        keys, values = places.flatten(0, 1).chunk(2, 1)
        rows = query.reshape(-1, 1, *query.shape[2:])
        attended = scaled_dot_product_attention(group(rows, self.cache.kv_heads), keys, values, attn_mask=mask)
        return ungroup(attended, 1).view(query.shape)
