"""One layer on a chunk of slots of one loop (prefill): the training form, continued from caches.

Shapes: B sequences, T new slots start..start+T-1, H query heads, Hkv key heads, dh head width.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from workers.config import ModelConfig
from workers.decoding.cache import Cache
from workers.decoding.weights import LayerWeights
from workers.models.rotary import RotaryTables, apply_rotary


def chunk_layer(
    layer: LayerWeights,
    index: int,
    x: Tensor,
    loop: int,
    start: int,
    tables: RotaryTables,
    cache: Cache,
    config: ModelConfig,
) -> Tensor:
    """Layer number `index` on the residual stream `x` (B, T, d) of `loop`; `tables` are those of the chunk's slots."""
    heads = layer.project(x).view(*x.shape[:2], -1, config.head_dim).transpose(1, 2)
    query = apply_rotary(heads[:, : config.num_attention_heads], tables)
    key, value = heads[:, config.num_attention_heads :].chunk(2, 1)
    key_value = torch.cat((apply_rotary(key, tables), value), 1)
    windowed = config.local == "swa" and loop > 0
    recent = cache.read_recent(index, loop, start) if windowed else None
    cache.write_chunk(index, loop, key_value, start)
    attended = _attend_causal(query, cache.read_full(index, loop, start + x.shape[1]), start).transpose(1, 2)
    if recent is not None:
        local = _attend_recent(query, torch.cat((recent, key_value), 2), config.window or 0)
        attended = layer.mixer.mix(x, query.transpose(1, 2), local.transpose(1, 2), attended)
    return layer.finish(x, attended.flatten(2))


def _attend_causal(query: Tensor, key_value: Tensor, start: int) -> Tensor:
    """Attention (B, H, T, dh) of slots start.. over the key and value heads (B, 2 Hkv, start+T, dh) up to them."""
    keys, values = key_value.chunk(2, 1)
    grouped = query.shape[1] != keys.shape[1]
    if start == 0:
        return scaled_dot_product_attention(query, keys, values, is_causal=True, enable_gqa=grouped)
    mask = _distance(query.shape[2], keys.shape[2], query.device) >= 0
    return scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=grouped)


def _attend_recent(query: Tensor, key_value: Tensor, window: int) -> Tensor:
    """Windowed attention (B, H, T, dh) over key and value heads (B, 2 Hkv, p+T, dh) that end at the last query."""
    keys, values = key_value.chunk(2, 1)
    distance = _distance(query.shape[2], keys.shape[2], query.device)
    mask = (distance >= 0) & (distance < window)
    grouped = query.shape[1] != keys.shape[1]
    return scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=grouped)


def _distance(queries: int, keys: int, device: torch.device) -> Tensor:
    """(queries, keys): how many slots each key lies before its query, when both end at the same slot."""
    return torch.arange(keys - queries, keys, device=device)[:, None] - torch.arange(keys, device=device)
