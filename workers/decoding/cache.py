"""What decoding asks of a key and value cache; two kinds exist, one per `kv_mode`.

Shapes: B sequences, n rows of one slot (loops first..first+n-1), T slots of a chunk, H query heads, Hkv key heads, dh
head width. Keys are stored after RoPE. Key and value heads travel together, keys first: 2 Hkv heads.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor

from workers.decoding.slot import Slot


class SlotAttention(NamedTuple):
    """Attention of the rows of one slot."""

    full: Tensor
    """(B, n, H, dh): every row's full context."""
    local: Tensor | None
    """(B, n', H, dh): the windows of the rows that have one (loops 2..R), or None when no row has."""


class SlotView(ABC):
    """A cache as the rows of one slot see it in one pass over the layers."""

    @abstractmethod
    def attend(self, layer: int, query: Tensor, key_value: Tensor) -> SlotAttention:
        """Keep `key_value` (B, n, 2 Hkv, dh) as far as it is read later, then attend with `query` (B, n, H, dh)."""


class Cache(ABC):
    """Keys and values of a batch of sequences of equal length, preallocated for all layers and loops."""

    places: Tensor
    """(L, B, 2 Hkv, P, dh), or (L, B, R, 2 Hkv, S, dh) where every loop has its own: key heads, then value heads."""

    @abstractmethod
    def view(self, slot: Slot, first: int, rows: int) -> SlotView:
        """The cache for a pass of `rows` rows from loop `first` (counted from 0) at `slot`."""

    @abstractmethod
    def write_chunk(self, layer: int, loop: int, key_value: Tensor, start: int) -> None:
        """Keep what is read later of one loop's key and value heads (B, 2 Hkv, T, dh) at slots start..start+T-1."""

    @abstractmethod
    def read_full(self, layer: int, loop: int, stop: int) -> Tensor:
        """Key and value heads (B, 2 Hkv, stop, dh) of slots 0..stop-1 for full-context attention of `loop`."""

    @abstractmethod
    def read_recent(self, layer: int, loop: int, start: int) -> Tensor:
        """Key and value heads (B, 2 Hkv, p, dh) of a later loop's own p = min(start, window-1) slots before `start`."""

    @abstractmethod
    def forget(self, length: int) -> None:
        """Start over after `length` slots: what was not finite there would show through masks, as 0 * NaN."""

    @abstractmethod
    def used_bytes(self, length: int) -> int:
        """Bytes that one sequence of `length` slots occupies, counted from the tensors."""


def group(query: Tensor, kv_heads: int) -> Tensor:
    """Queries (B, n, H, dh) as n H / Hkv rows per key head, (B, Hkv, n H / Hkv, dh)."""
    batch, rows, heads, width = query.shape
    return query.view(batch, rows, kv_heads, heads // kv_heads, width).transpose(1, 2).flatten(2, 3)


def ungroup(attended: Tensor, rows: int) -> Tensor:
    """The inverse of `group`: (B, Hkv, n H / Hkv, dh) to (B, n, H, dh)."""
    batch, kv_heads, _, width = attended.shape
    return attended.view(batch, kv_heads, rows, -1, width).transpose(1, 2).reshape(batch, rows, -1, width)


def byte_count(tensor: Tensor) -> int:
    """Bytes of the elements of a tensor or view."""
    return tensor.numel() * tensor.element_size()
