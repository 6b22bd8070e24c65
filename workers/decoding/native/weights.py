"""A model's weights as the compiled step reads them: in blocks of 16 outputs, one cache line after the other.

A matrix (out, in) becomes (out / 16, in / k, 16, k) with k inputs of each output in a 64-byte line: 2 for bfloat16, 1
for float32. Sizes are padded with zeros to whole blocks. Norms and gates are kept in float32.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from workers.decoding.memory import Arena
from workers.decoding.native.library import NativeUnavailableError, library
from workers.models import LoopedTransformer
from workers.models.layer import DecoderLayer

LANES = 16
TILE_INPUTS = 32
"""Inputs of one AMX tile of bfloat16."""
_INPUTS_PER_LINE = {torch.bfloat16: 2, torch.float32: 1}


@dataclass(frozen=True)
class NativeLayer:
    """One layer's tensors, kept alive here while the compiled code holds their addresses."""

    input_norm: Tensor
    query_key_value: Tensor
    output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    """Blocks of the SwiGLU gate and of up by turns."""
    down: Tensor
    gate_weight: Tensor | None
    """(H, dh) of the query or, with the gate's own norm multiplied in, (H, d) of the residual stream; its sign is that
    of the full context's share."""
    gate_bias: Tensor | None
    """(H)."""


class NativeWeights:
    """The packed weights of a model, a snapshot, beside its `embedding` (V, d) as it is.

    Raises:
        NativeUnavailableError: The compiled step does not take this model here.
    """

    def __init__(self, model: LoopedTransformer, embedding: Tensor) -> None:
        config, head = model.config, model.model.embed_tokens if model.lm_head is None else model.lm_head
        weight: Tensor = head.weight.detach()
        _check(weight, config.hidden_size, config.head_dim)
        _check_types(model, weight.dtype)
        self.dtype = weight.dtype
        self.embedding = embedding
        self.inner = -(-config.intermediate_size // TILE_INPUTS) * TILE_INPUTS
        """The SwiGLU's width, padded to whole blocks."""
        self.vocabulary = weight.shape[0]
        self.norm = model.model.norm.weight.detach().float().clone()
        """Of the end of the model, or of every loop."""
        self._arena = Arena(self._numbers(model), weight.dtype)
        self.layers = [self._pack_layer(layer) for layer in model.model.layers]
        self.head = self._arena.place(packed(weight))

    def _numbers(self, model: LoopedTransformer) -> int:
        """Of all packed matrices."""
        config = model.config
        heads = 2 * config.num_attention_heads + 2 * config.num_key_value_heads
        layer = config.hidden_size * (heads * config.head_dim + 3 * self.inner)
        return config.num_hidden_layers * layer + -(-self.vocabulary // LANES) * LANES * config.hidden_size

    def _pack_layer(self, layer: torch.nn.Module) -> NativeLayer:
        assert isinstance(layer, DecoderLayer)
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight)
        more = self.inner - mlp.down_proj.weight.shape[1]
        gate_up = torch.stack(
            [packed(pad(part.weight.detach(), (0, 0, 0, more))) for part in (mlp.gate_proj, mlp.up_proj)], 1
        )
        gate = attention.plt_gate
        gate_weight = gate_bias = None
        if gate is not None:
            sign = 1.0 if attention.config.gate_polarity == "global" else -1.0
            gate_weight, gate_bias = sign * gate.weight.detach().float(), sign * gate.bias.detach().float()
            if gate.gate_norm is not None:
                gate_weight = gate_weight * gate.gate_norm.weight.detach().float()
        return NativeLayer(
            input_norm=layer.input_layernorm.weight.detach().float().clone(),
            query_key_value=self._arena.place(packed(torch.cat(projections).detach())),
            output=self._arena.place(packed(attention.o_proj.weight.detach())),
            mlp_norm=layer.post_attention_layernorm.weight.detach().float().clone(),
            gate_up=self._arena.place(gate_up),
            down=self._arena.place(packed(pad(mlp.down_proj.weight.detach(), (0, more)))),
            gate_weight=None if gate_weight is None else gate_weight.contiguous(),
            gate_bias=gate_bias,
        )


def packed(weight: Tensor) -> Tensor:
    """A matrix (out, in) in blocks, (ceil(out / 16), in / k, 16, k); `in` is a multiple of k."""
    outputs, inputs = weight.shape
    per = _INPUTS_PER_LINE[weight.dtype]
    whole = pad(weight, (0, 0, 0, -outputs % LANES))
    return whole.view(-1, LANES, inputs // per, per).transpose(1, 2).contiguous()


def _check_types(model: LoopedTransformer, dtype: torch.dtype) -> None:
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and parameter.dtype != dtype and "plt_gate" not in name:
            raise NativeUnavailableError(
                f"{name} is {parameter.dtype} and the head {dtype}; compiled steps take one type"
            )


def _check(weight: Tensor, width: int, head_dim: int) -> None:
    if weight.device.type != "cpu":
        raise NativeUnavailableError(f"the model is on {weight.device}")
    if weight.dtype not in _INPUTS_PER_LINE:
        raise NativeUnavailableError(f"weights are {weight.dtype}; compiled steps take bfloat16 and float32")
    if width % LANES:
        raise NativeUnavailableError(f"hidden_size is {width}; compiled steps take multiples of {LANES}")
    if not library().plt_takes_head_dim(head_dim):
        raise NativeUnavailableError(
            f"head_dim is {head_dim}; compiled steps take 16, 32, 48, 64, 80, 96, 128, 160, 192 and 256"
        )
