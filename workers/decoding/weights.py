"""A model's weights in decoding form: fused and packed. A snapshot, which later training does not change.

On a CPU they are held twice: as PyTorch's operators take them, for prefill, and as compiled steps do.
"""

import logging
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from workers.decoding.gate import Mixer, mixer_of
from workers.decoding.linear import PackedLinear
from workers.decoding.native import NativeUnavailableError, NativeWeights
from workers.models import LoopedTransformer
from workers.models.layer import DecoderLayer

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LayerWeights:
    """One layer; every method works on rows, whatever slots and loops they belong to."""

    input_norm: Tensor
    query_key_value: PackedLinear
    """((H + 2 Hkv) dh, d): queries, keys, values, in that order."""
    output: PackedLinear
    mlp_norm: Tensor
    gate_up: PackedLinear
    """(2 * intermediate, d): the SwiGLU gate, then up."""
    down: PackedLinear
    mixer: Mixer
    """Of full-context and windowed attention."""
    eps: float

    @property
    def products(self) -> tuple[PackedLinear, ...]:
        """Every matrix product of the layer."""
        return self.query_key_value, self.output, self.gate_up, self.down

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys and values (..., (H + 2 Hkv) dh) of the residual stream (..., d), before RoPE."""
        return self.query_key_value(rms_norm(x, self.input_norm.shape, self.input_norm, self.eps))

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The residual stream after this layer, from the one entering it and the heads' outputs, both (..., d)."""
        x = x + self.output(attended)
        gate, up = self.gate_up(rms_norm(x, self.mlp_norm.shape, self.mlp_norm, self.eps)).chunk(2, -1)
        return x + self.down(silu(gate) * up)


class DecoderWeights:
    """All weights of `model`, packed for steps of `rows` rows (batch size times loops per pass).

    Where compiled steps cannot serve a model on a CPU, the reason is logged once.
    """

    def __init__(self, model: LoopedTransformer, rows: int) -> None:
        self.embedding = model.model.embed_tokens.weight.detach().clone()
        self.layers = [_pack_layer(layer, rows) for layer in model.model.layers]
        self.norm = model.model.norm.weight.detach().clone()
        self.eps = model.config.rms_norm_eps
        self.head = PackedLinear(self.embedding if model.lm_head is None else model.lm_head.weight, rows)
        self.native: NativeWeights | None = None
        """For compiled steps; None where there are none."""
        if not self.embedding.is_cuda:
            try:
                self.native = NativeWeights(model, self.embedding)
            except NativeUnavailableError as reason:
                _tell_once(str(reason))

    def normalise(self, x: Tensor) -> Tensor:
        """The final norm on rows (..., d)."""
        return rms_norm(x, self.norm.shape, self.norm, self.eps)

    def read_bytes(self) -> int:
        """Bytes of the matrices that one pass over the layers and the head reads."""
        products = [product for layer in self.layers for product in layer.products] + [self.head]
        return sum(product.read_bytes for product in products)


@cache
def _tell_once(reason: str) -> None:
    _log.warning("decode steps use PyTorch's operators, which are slower than compiled ones: %s", reason)


def _pack_layer(layer: torch.nn.Module, rows: int) -> LayerWeights:
    assert isinstance(layer, DecoderLayer)
    attention, mlp = layer.self_attn, layer.mlp
    projections = (attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight)
    return LayerWeights(
        input_norm=layer.input_layernorm.weight.detach().clone(),
        query_key_value=PackedLinear(torch.cat(projections), rows),
        output=PackedLinear(attention.o_proj.weight, rows),
        mlp_norm=layer.post_attention_layernorm.weight.detach().clone(),
        gate_up=PackedLinear(torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight)), rows),
        down=PackedLinear(mlp.down_proj.weight, rows),
        mixer=mixer_of(attention),
        eps=layer.input_layernorm.eps,
    )
