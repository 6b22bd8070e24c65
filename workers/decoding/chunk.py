"""One layer on a chunk of slots of one loop (prefill): the training form, continued from caches.

Shapes: B sequences, T new slots start..start+T-1, H query heads, Hkv key heads, dh head width.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from workers.decoding.caches import Caches
from workers.decoding.weights import LayerWeights
from workers.models.rotary import RotaryTables, apply_rotary


def chunk_layer(
    layer: LayerWeights, index: int, x: Tensor, loop: int, start: int, tables: RotaryTables, caches: Caches
) -> Tensor:
    """Layer number `index` on the residual stream `x` (B, T, d) of `loop`; `tables` are those of the chunk's slots."""
    config, stop = caches.config, start + x.shape[1]
    queries, keys = config.num_attention_heads, config.num_key_value_heads
    heads = layer.project(x).view(*x.shape[:2], -1, config.head_dim).transpose(1, 2)
    turned = apply_rotary(heads[:, : queries + keys], tables)
    query, key, value = turned[:, :queries], turned[:, queries:], heads[:, queries + keys :]
    windowed = config.local == "swa" and loop > 0
    local = _attend_recent(query, key, value, caches.read_recent(index, loop, start), caches) if windowed else None
    caches.write_chunk(index, loop, key, value, start)
    attended = _attend_causal(query, *caches.read_full_chunk(index, loop, stop), start)
    if local is not None:
        attended, _ = layer.attention.mix(x, query, local, attended)
    return layer.finish(x, attended.transpose(1, 2).flatten(2))


def _attend_causal(query: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
    """Attention (B, H, T, dh) of slots start.. over slots 0..start+T-1."""
    grouped = query.shape[1] != keys.shape[1]
    if start == 0:
        return scaled_dot_product_attention(query, keys, values, is_causal=True, enable_gqa=grouped)
    mask = _distance(query.shape[2], keys.shape[2], query.device) >= 0
    return scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=grouped)


def _attend_recent(query: Tensor, key: Tensor, value: Tensor, recent: tuple[Tensor, Tensor], caches: Caches) -> Tensor:
    """Attention (B, H, T, dh) over the window: the chunk's own keys and values after the `recent` ones."""
    keys, values = torch.cat((recent[0], key), 2), torch.cat((recent[1], value), 2)
    distance = _distance(query.shape[2], keys.shape[2], query.device)
    mask = (distance >= 0) & (distance < (caches.config.window or 0))
    return scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=query.shape[1] != keys.shape[1])


def _distance(queries: int, keys: int, device: torch.device) -> Tensor:
    """(queries, keys): how many slots each key lies before its query, when both end at the same slot."""
    return torch.arange(keys - queries, keys, device=device)[:, None] - torch.arange(keys, device=device)
