"""Sliding-window attention: query slot t sees key slots max(0, t-w+1)..t, the current one included.

On CUDA it is FlexAttention with a block mask, which skips the blocks outside the band. Elsewhere, and for the shapes
that FlexAttention does not take (head width below 16, float64), it is `scaled_dot_product_attention`: of short
sequences with a band mask, of long ones in blocks of slots, each of which sees itself and the one before it, so that
time and memory grow with the length and not with its square. Masks of the whole length are built once per length,
window and device and kept; under `torch.compile` they are part of the graph instead.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.nn.functional import pad, scaled_dot_product_attention

FLEX_MIN_HEAD_DIM = 16
"""Narrowest head that FlexAttention's kernels take."""
MIN_BLOCK = 64
"""Fewest slots of a block; smaller ones are many small products."""
BLOCKS_WORTH = 3
"""Sequences of more blocks than this are cut into blocks."""


def attend_window(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """Windowed attention of `query` (B, H, S, dh) over `key` and `value` (B, Hkv, S, dh), both at slots 0..S-1."""
    if query.is_cuda and query.shape[-1] >= FLEX_MIN_HEAD_DIM and query.dtype != torch.float64:
        return attend_window_flex(query, key, value, window)
    long = query.shape[2] > BLOCKS_WORTH * max(window, MIN_BLOCK)
    return (attend_window_in_blocks if long else attend_window_sdpa)(query, key, value, window)


def attend_window_sdpa(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """`attend_window` through a dense band mask."""
    mask = band_mask(query.shape[2], window, query.device)
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=query.shape[1] != key.shape[1])


def attend_window_in_blocks(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """`attend_window` block by block, each with its own and the previous block's keys."""
    batch, heads, length, width = query.shape
    size = max(window, MIN_BLOCK)
    blocks = -(-length // size)
    rows = pad(query, (0, 0, 0, blocks * size - length)).view(batch, heads, blocks, size, width)
    rows = rows.transpose(1, 2).reshape(batch * blocks, heads, size, width)
    keys, values = (_with_previous(part, blocks, size) for part in (key, value))
    mask = _block_band(batch, blocks, size, window, query.device)
    attended = scaled_dot_product_attention(rows, keys, values, attn_mask=mask, enable_gqa=heads != key.shape[1])
    attended = attended.view(batch, blocks, heads, size, width).transpose(1, 2)
    return attended.reshape(batch, heads, blocks * size, width)[:, :, :length]


def _with_previous(part: Tensor, blocks: int, size: int) -> Tensor:
    """Keys or values (B, Hkv, S, dh) as those of every block and the one before it, (B * blocks, Hkv, 2 * size, dh)."""
    batch, heads, length, width = part.shape
    padded = pad(part, (0, 0, size, blocks * size - length)).view(batch, heads, blocks + 1, size, width)
    both = torch.cat((padded[:, :, :-1], padded[:, :, 1:]), 3)
    return both.transpose(1, 2).reshape(batch * blocks, heads, 2 * size, width)


def _block_band(batch: int, blocks: int, size: int, window: int, device: torch.device) -> Tensor:
    """Boolean (B * blocks, 1, size, 2 * size), true where a query slot of a block sees a key slot."""
    row, column = torch.arange(size, 2 * size, device=device)[:, None], torch.arange(2 * size, device=device)
    band = (row - column >= 0) & (row - column < window)
    mask = band.expand(blocks, size, 2 * size).clone()
    mask[0, :, :size] = False  # nothing is before the first block
    return mask.repeat(batch, 1, 1)[:, None]


def attend_window_flex(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """`attend_window` through FlexAttention, compiled on CUDA."""
    compiling = torch.compiler.is_compiling()
    mask = (_build_block_mask if compiling else _kept_block_mask)(query.shape[2], window, query.device)
    kernel = cast("Callable[..., Tensor]", _compiled_flex() if query.is_cuda and not compiling else flex_attention)
    return kernel(query, key, value, block_mask=mask, enable_gqa=query.shape[1] != key.shape[1])


def band_mask(length: int, window: int, device: torch.device) -> Tensor:
    """Boolean (S, S) mask, true where query slot (row) sees key slot (column)."""
    if torch.compiler.is_compiling():
        return _build_band(length, window, device)
    return _kept_band(length, window, device)


def _build_band(length: int, window: int, device: torch.device) -> Tensor:
    slot = torch.arange(length, device=device)
    distance = slot[:, None] - slot
    return (distance >= 0) & (distance < window)


@lru_cache(maxsize=16)
def _kept_band(length: int, window: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # an inference tensor could not take part in training later
        return _build_band(length, window, device)


def _build_block_mask(length: int, window: int, device: torch.device) -> BlockMask:
    def visible(batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:  # noqa: ARG001 (Flex's signature)
        distance = row - column
        return (distance >= 0) & (distance < window)

    return create_block_mask(visible, B=None, H=None, Q_LEN=length, KV_LEN=length, device=str(device))


@lru_cache(maxsize=16)
def _kept_block_mask(length: int, window: int, device: torch.device) -> BlockMask:
    with torch.inference_mode(False):
        return _build_block_mask(length, window, device)


@lru_cache(maxsize=1)
def _compiled_flex() -> object:
    return torch.compile(flex_attention)
