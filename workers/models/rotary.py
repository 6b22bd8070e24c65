"""Rotary position embedding in the `rotate_half` convention (RoFormer, arXiv 2104.09864; as in Hugging Face's Llama).

Element i of a head is paired with element i + dh/2 and turned by slot * theta^(-2i/dh). Positions are slot indices in
every loop. Angles are computed in float64; tables and the product are float32 (float64 in a double model), whatever the
type of the activations.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


class RotaryTables(NamedTuple):
    """Cosines, and sines signed for `rotate_half`, of slots 0..S-1; each (S, dh)."""

    cos: Tensor
    sin: Tensor


def rotary_tables(length: int, head_dim: int, theta: float, like: Tensor) -> RotaryTables:
    """Tables for slots 0..length-1 on the device of `like`: float64 when `like` is, else float32.

    Kept between calls; under `torch.compile` they are part of the graph instead.
    """
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    if torch.compiler.is_compiling():
        return _build(length, head_dim, theta, like.device, dtype)
    return _kept(length, head_dim, theta, like.device, dtype)


def apply_rotary(x: Tensor, tables: RotaryTables) -> Tensor:
    """Turn heads `x` (..., S, dh) by tables that broadcast against it; the type of `x` is kept."""
    wide = x.to(tables.cos.dtype)
    return torch.addcmul(wide * tables.cos, wide.roll(x.shape[-1] // 2, -1), tables.sin).to(x.dtype)


def _build(length: int, head_dim: int, theta: float, device: torch.device, dtype: torch.dtype) -> RotaryTables:
    pair = torch.arange(0, head_dim, 2, device=device, dtype=torch.float64)
    angle = torch.arange(length, device=device, dtype=torch.float64)[:, None] * theta ** (-pair / head_dim)
    cos, sin = angle.cos(), angle.sin()
    return RotaryTables(torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype))


@lru_cache(maxsize=16)
def _kept(length: int, head_dim: int, theta: float, device: torch.device, dtype: torch.dtype) -> RotaryTables:
    with torch.inference_mode(False):  # an inference tensor could not take part in training later
        return _build(length, head_dim, theta, device, dtype)
