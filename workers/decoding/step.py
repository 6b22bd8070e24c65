"""One layer on the rows of one new slot, several loops at once (decoding form).

With CLP all R rows of a slot go through each layer together: once the projections of a layer are known, rows 2..R need
nothing of the same slot but row 1's key and value, which is in the cache by then (PLT, arXiv 2510.24824, Algorithm 1).
Rows that read the same keys are laid out as extra grouped-query heads of one `scaled_dot_product_attention`, so shared
keys and values are read once; that also spares the CPU from expanding keys to every query head.

Shapes: B sequences, n rows (loops first..first+n-1), H query heads in Hkv groups of G, dh head width.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from workers.decoding.caches import Caches
from workers.decoding.slot import Slot
from workers.decoding.weights import LayerWeights
from workers.models.rotary import apply_rotary


class SlotPass:
    """Runs layers on rows of one slot: what is the same in every layer is worked out once."""

    def __init__(self, caches: Caches, slot: Slot) -> None:
        self.caches = caches
        self.slot = slot
        self.full = caches.see_full(slot)
        self.window = caches.see_window(slot)

    def run(self, layer: LayerWeights, index: int, x: Tensor, first: int) -> Tensor:
        """Layer number `index` on the residual rows `x` (B, n, d) of loops first..first+n-1; keeps keys and values."""
        config = self.caches.config
        heads = layer.project(x).view(*x.shape[:2], -1, config.head_dim)
        turned = apply_rotary(heads, self.slot.tables)
        query = turned[:, :, : config.num_attention_heads]
        self.caches.write(index, turned[:, :, config.num_attention_heads :], self.slot, first)
        keys, values = self.full.keys[index], self.full.values[index]
        if self.caches.own:
            attended = _attend_own(query, keys[:, first:], values[:, first:], self.slot.full_mask)
        else:
            attended = _attend_shared(query, keys[:, 0], values[:, 0], self.slot.full_mask)
        if self.window is not None and first + x.shape[1] > 1:
            attended = self._mix_window(layer, index, x, query, attended, first)
        return layer.finish(x, attended.flatten(2))

    def _mix_window(
        self, layer: LayerWeights, index: int, x: Tensor, query: Tensor, attended: Tensor, first: int
    ) -> Tensor:
        """Gate the window into the rows of later loops; row 1 keeps its full-context attention."""
        assert self.window is not None
        keys, values = self.window.keys[index], self.window.values[index]
        plain, skipped = (1, 0) if first == 0 else (0, first - 1)
        query = query[:, plain:]
        local = _attend_own(query, keys[:, skipped:], values[:, skipped:], self.slot.window_mask)
        by_head = (part.transpose(1, 2) for part in (query, local, attended[:, plain:]))
        mixed, _ = layer.attention.mix(x[:, plain:], *by_head)
        return torch.cat((attended[:, :plain], mixed.transpose(1, 2)), 1)


def _attend_shared(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention (B, n, H, dh) of all rows over the same keys and values (B, Hkv, places, dh), read once."""
    grouped = query.view(*query.shape[:2], keys.shape[1], -1, query.shape[3]).transpose(1, 2)  # (B, Hkv, n, G, dh)
    attended = scaled_dot_product_attention(grouped.flatten(2, 3), keys, values, attn_mask=mask)
    return attended.view(grouped.shape).transpose(1, 2).reshape(query.shape)


def _attend_own(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention (B, n, H, dh) of row i over the keys and values number i of (B, C, Hkv, places, dh), C >= n."""
    rows = query.shape[1]
    grouped = query.reshape(-1, keys.shape[2], query.shape[2] // keys.shape[2], query.shape[3])  # (B n, Hkv, G, dh)
    own_keys, own_values = keys[:, :rows].flatten(0, 1), values[:, :rows].flatten(0, 1)
    return scaled_dot_product_attention(grouped, own_keys, own_values, attn_mask=mask).reshape(query.shape)
