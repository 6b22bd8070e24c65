"""One pass over the layers with the rows of one new slot, several loops at once (decoding form).

With CLP all R rows of a slot go through each layer together: once the projections of a layer are known, rows 2..R need
nothing of the same slot but row 1's key and value, which is in the cache by then (PLT, arXiv 2510.24824, Algorithm 1).

Shapes: B sequences, n rows (loops first..first+n-1), d width, H query heads, dh head width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from workers.config import ModelConfig
from workers.decoding.cache import Cache, SlotView
from workers.decoding.slot import Slot
from workers.decoding.weights import LayerWeights
from workers.models.rotary import apply_rotary


def run_slot(
    layers: Sequence[LayerWeights], x: Tensor, first: int, slot: Slot, cache: Cache, config: ModelConfig
) -> Tensor:
    """The residual rows (B, n, d) after all layers, from rows `x` (B, n, d); keys and values go to the cache."""
    view = cache.view(slot, first, x.shape[1])
    for index, layer in enumerate(layers):
        x = _run_layer(layer, index, x, slot, view, config)
    return x


def _run_layer(layer: LayerWeights, index: int, x: Tensor, slot: Slot, view: SlotView, config: ModelConfig) -> Tensor:
    heads = layer.project(x).view(*x.shape[:2], -1, config.head_dim)
    turned = apply_rotary(heads, slot.tables)
    query, key_value = turned[:, :, : config.num_attention_heads], turned[:, :, config.num_attention_heads :]
    attended, local = view.attend(index, query, key_value)
    if local is not None:
        plain = x.shape[1] - local.shape[1]  # rows of loop 1, which has no window
        mixed = layer.mixer.mix(x[:, plain:], query[:, plain:], local, attended[:, plain:])
        attended = torch.cat((attended[:, :plain], mixed), 1)
    return layer.finish(x, attended.flatten(2))
