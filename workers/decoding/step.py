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

from workers.config import ModelConfig
from workers.decoding.caches import Caches
from workers.decoding.slot import Slot
from workers.decoding.weights import LayerWeights
from workers.models.rotary import apply_rotary


def step_layer(layer: LayerWeights, index: int, x: Tensor, first: int, slot: Slot, caches: Caches) -> Tensor:
    """Layer number `index` on the residual rows `x` (B, n, d) of loops first..first+n-1; keeps keys and values."""
    query, key, value = _project(layer, x, slot, caches.config)
    caches.write(index, key, value, slot, first)
    keys, values = caches.read_full(index, slot)
    if caches.config.kv_mode == "per_loop":
        attended = _attend_own(query, keys[:, first:], values[:, first:], slot.full_mask)
    else:
        attended = _attend_shared(query, keys[:, 0], values[:, 0], slot.full_mask)
    plain = 1 if first == 0 else 0  # rows of loop 1, which has no window
    if caches.config.local == "swa" and x.shape[1] > plain:
        skipped = max(first, 1) - 1
        keys, values = caches.read_window(index, slot)
        local = _attend_own(query[:, plain:], keys[:, skipped:], values[:, skipped:], slot.window_mask)
        by_head = (part.transpose(1, 2) for part in (query[:, plain:], local, attended[:, plain:]))
        mixed, _ = layer.attention.mix(x[:, plain:], *by_head)
        attended = torch.cat((attended[:, :plain], mixed.transpose(1, 2)), 1)
    return layer.finish(x, attended.flatten(2))


def _project(layer: LayerWeights, x: Tensor, slot: Slot, config: ModelConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (B, n, H, dh) and keys after RoPE, and values, both (B, n, Hkv, dh)."""
    queries, keys = config.num_attention_heads, config.num_key_value_heads
    heads = layer.project(x).view(*x.shape[:2], -1, config.head_dim)
    turned = apply_rotary(heads[:, :, : queries + keys], slot.tables)
    return turned[:, :, :queries], turned[:, :, queries:], heads[:, :, queries + keys :]


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
