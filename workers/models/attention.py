"""Causal grouped-query attention of one layer, in loop 1 and in later loops (training form).

Later loops read the full context through the keys and values of loop 1 (`share_first`) or their own (`per_loop`), and
with `local: swa` mix in a window over their own, per head and before the output projection:

    y = s * Attn(q, K_full, V_full) + (1 - s) * Attn(q, K_own, V_own; last w slots)     s: the gate's global share

Gradients flow through the shared keys and values. Shapes: B sequences, S slots, d width, H query heads, Hkv key heads,
dh head width.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from workers.config import ModelConfig
from workers.models.gate import Gate
from workers.models.rotary import RotaryTables, apply_rotary
from workers.models.window import attend_window


class KeyValue(NamedTuple):
    """Keys after RoPE, and values; each (B, Hkv, S, dh)."""

    key: Tensor
    value: Tensor


class Attended(NamedTuple):
    """What attention hands on."""

    output: Tensor
    """(B, S, d), after the output projection."""
    key_value: KeyValue
    """The loop's own, or loop 1's where the loop has none."""
    gate: Tensor | None
    """(B, H, S) gate values before polarity, or None without a learned gate."""


class Attention(nn.Module):
    """Projections and gate of one layer, the same in every loop."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        kv_width = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.plt_gate = Gate(config) if config.has_gate else None
        self.fixed_share = config.fixed_gate or 0.0  # of the full context: normalised configurations count that way
        self.window = config.window or 0

    def forward(self, x: Tensor, residual: Tensor, tables: RotaryTables, first: KeyValue | None) -> Attended:
        """Attend from normalised `x` (B, S, d); `first` is loop 1's keys and values in this layer, None in loop 1."""
        query = apply_rotary(self.heads(self.q_proj(x)), tables)
        shared = first is not None and self.config.kv_mode == "share_first"
        if first is not None and shared and self.config.local == "none":
            return Attended(self._merge(attend_causal(query, first)), first, None)
        own = KeyValue(apply_rotary(self.heads(self.k_proj(x)), tables), self.heads(self.v_proj(x)))
        if first is None or self.config.local == "none":
            return Attended(self._merge(attend_causal(query, own)), own, None)
        local = attend_window(query, own.key, own.value, self.window)
        mixed, gate = self._mix(residual, query, local, attend_causal(query, first if shared else own))
        return Attended(self._merge(mixed), own, gate)

    def heads(self, x: Tensor) -> Tensor:
        """Split a projection (B, S, heads * dh) into heads (B, heads, S, dh)."""
        return x.view(*x.shape[:2], -1, self.config.head_dim).transpose(1, 2)

    def _mix(self, residual: Tensor, query: Tensor, local: Tensor, full: Tensor) -> tuple[Tensor, Tensor | None]:
        """Gate windowed and full-context attention, both (B, H, S, dh); also the gate values, if learned."""
        if self.plt_gate is None:
            return torch.lerp(local, full, self.fixed_share), None
        gate: Tensor = self.plt_gate(residual, query)
        share = gate if self.config.gate_polarity == "global" else 1 - gate
        return torch.lerp(local, full, share[..., None].to(local.dtype)), gate

    def _merge(self, attended: Tensor) -> Tensor:
        output: Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return output


def attend_causal(query: Tensor, full: KeyValue) -> Tensor:
    """Full causal attention of `query` (B, H, S, dh) over keys and values at the same slots."""
    grouped = query.shape[1] != full.key.shape[1]
    return scaled_dot_product_attention(query, full.key, full.value, is_causal=True, enable_gqa=grouped)
