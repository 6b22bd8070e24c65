"""Where the heads of a layer look, computed a block of query slots at a time; no S x S matrix is ever held.

The attention of a loop is the distribution A over slots that a head really mixes with: the full context's, or with a
gated window s * A_full + (1 - s) * A_window, s being the gate's share of the full context. Entropy and divergence are
worked out on logarithms, so that a weight too small for the type is still a number.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from workers.models import LoopedTransformer
from workers.models.attention import Attended, Attention, KeyValue
from workers.models.rotary import RotaryTables, apply_rotary

BLOCK_ELEMENTS = 2**22
"""Scores held at once: queries x keys x heads x sequences."""


@dataclass(frozen=True)
class Routing:
    """What decides where one layer looks in one loop: B sequences, S slots, H heads of width dh."""

    query: Tensor
    """(B, H, S, dh), after RoPE."""
    full_key: Tensor
    """(B, H, S, dh), of the full context."""
    own_key: Tensor | None
    """(B, H, S, dh), of the window; None without one."""
    share: Tensor | None
    """(B, H, S): what the full context counts beside the window; None without a window."""
    window: int
    heads: Tensor
    """(B, S, H, dh): what each head hands to the output projection."""


@contextmanager
def recorded(model: LoopedTransformer) -> Iterator[list[Routing]]:
    """While this is open, every pass of a layer appends its routing to the list."""
    found: list[Routing] = []
    merged: list[Tensor] = []

    def before_projection(_module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        merged.append(arguments[0])

    def after_attention(module: torch.nn.Module, arguments: tuple[Any, ...], attended: Attended) -> None:
        assert isinstance(module, Attention)
        found.append(_routing(module, *arguments, attended=attended, merged=merged.pop()))

    hooks = []
    for layer in model.model.layers:
        attention = layer.self_attn
        assert isinstance(attention, Attention)
        hooks.append(attention.o_proj.register_forward_pre_hook(before_projection))
        hooks.append(attention.register_forward_hook(after_attention))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _routing(
    module: Attention,
    x: Tensor,
    _residual: Tensor,
    tables: RotaryTables,
    first: KeyValue | None,
    *,
    attended: Attended,
    merged: Tensor,
) -> Routing:
    """From what attention was called with and what it gave."""
    query = apply_rotary(module.heads(module.q_proj(x)), tables)
    groups = query.shape[1] // attended.key_value.key.shape[1]
    own = attended.key_value.key.repeat_interleave(groups, 1)
    windowed = first is not None and module.config.local == "swa"
    shared = first is not None and module.config.kv_mode == "share_first"
    full = first.key.repeat_interleave(groups, 1) if first is not None and shared else own
    heads = merged.view(*merged.shape[:2], query.shape[1], -1)
    if not windowed:
        return Routing(query, full, None, None, 0, heads)
    return Routing(query, full, own, _share(module, query, attended.gate), module.window, heads)


def _share(module: Attention, query: Tensor, gate: Tensor | None) -> Tensor:
    """The full context's share (B, H, S); of a learned gate away from 0 and 1 by the rounding of its type."""
    if gate is None:
        return torch.full(query.shape[:3], module.fixed_share, dtype=query.dtype, device=query.device)
    share = gate if module.config.gate_polarity == "global" else 1 - gate
    margin = torch.finfo(share.dtype).eps
    return share.clamp(margin, 1 - margin)


def entropy_and_change(now: Routing, before: Routing | None) -> tuple[Tensor, Tensor | None]:
    """Per sequence and head (B, H), averaged over query slots: the entropy of A(r), and KL(A(r) || A(r-1))."""
    batch, heads, slots, _ = now.query.shape
    entropy = torch.zeros(batch, heads, dtype=torch.float64, device=now.query.device)
    change = None if before is None else torch.zeros_like(entropy)
    size = max(1, BLOCK_ELEMENTS // (batch * heads * slots))
    for start in range(0, slots, size):
        stop = min(slots, start + size)
        logs = log_attention(now, start, stop)
        weights = logs.exp()
        entropy += torch.special.entr(weights).sum(-1).sum(-1)
        if before is not None and change is not None:
            ratio = torch.where(weights > 0, logs - log_attention(before, start, stop), 0)
            change += (weights * ratio).sum(-1).sum(-1)
    return entropy / slots, None if change is None else change / slots


def log_attention(routing: Routing, start: int, stop: int) -> Tensor:
    """log A of query slots start..stop-1 over key slots 0..stop-1, (B, H, stop - start, stop); -inf where unseen."""
    rows = torch.arange(start, stop, device=routing.query.device)[:, None]
    columns = torch.arange(stop, device=routing.query.device)
    query, distance = routing.query[:, :, start:stop], rows - columns
    full = _log_weights(query, routing.full_key[:, :, :stop], distance >= 0)
    if routing.own_key is None or routing.share is None:
        return full
    seen = (distance >= 0) & (distance < routing.window)
    local = _log_weights(query, routing.own_key[:, :, :stop], seen)
    share = routing.share[:, :, start:stop, None].double()
    return torch.logaddexp(share.log() + full, (1 - share).log() + local)


def _log_weights(query: Tensor, key: Tensor, seen: Tensor) -> Tensor:
    scores = (query @ key.transpose(-1, -2)) / math.sqrt(query.shape[-1])
    return scores.double().masked_fill(~seen, -math.inf).log_softmax(-1)


def head_cosine(heads: Tensor) -> Tensor:
    """Mean cosine between the outputs of two different heads at one slot, per sequence (B,); needs two heads."""
    unit = normalize(heads.double(), dim=-1)
    count = heads.shape[2]
    pairs = unit.sum(2).square().sum(-1) - unit.square().sum((-1, -2))
    return (pairs / (count * (count - 1))).mean(-1)
