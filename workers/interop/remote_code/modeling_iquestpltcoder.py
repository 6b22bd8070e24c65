"""Looped transformers with shared keys and values, gated sliding-window attention and cross-loop parallelism (CLP).

    E    = Embed(ids);  X(1) = E;  X(r) = b * Shift(h(r-1)) + a * E       Shift: one slot to the right, with CLP
    h(r) = Layers(X(r)), with norm_per_loop followed by the final norm;   logits = Head(Norm(h(R)))
    y    = g * Attn(q, K(1), V(1)) + (1 - g) * Attn(q, K(r), V(r); window)   in loops r >= 2, g per head and token

PLT (arXiv 2510.24824), LoopCoder-v2 (arXiv 2606.18023). The loops run one after another, in decoding too: this file is
for correctness in transformers' own tools (`generate`, beams, padding, continued caches), not for speed. For
transformers 4.57 and newer, torch 2.5 and newer.

Shapes: B sequences, T new slots, S slots in all, d width, H query heads, Hkv key heads, dh head width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad, scaled_dot_product_attention, silu
from transformers import DynamicCache, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_iquestpltcoder import IQuestPLTCoderConfig

KeyValue = tuple[Tensor, Tensor]


class LoopCache(DynamicCache):
    """Keys and values by loop and layer, the states that CLP carries to the next slot, and which slots are no padding.

    Loops that attend through a window keep its last window - 1 slots only, so a cache cannot be cut back.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.tensors: dict[tuple[str | int, int], tuple[Tensor, ...]] = {}
        self.valid: Tensor | None = None

    @classmethod
    def adopt(cls, cache: DynamicCache) -> "LoopCache":
        """The cache that was handed in, made one of this kind in place, so that whoever handed it in keeps it."""
        if isinstance(cache, cls):
            return cache
        if type(cache) is not DynamicCache or cache.get_seq_length() > 0:
            raise ValueError(
                f"the cache is a {type(cache).__name__} with {cache.get_seq_length()} slots; this model goes on from "
                "a cache that it returned itself, or from an empty DynamicCache"
            )
        cache.__class__ = cls
        cache.reset()
        return cache

    def extend(
        self, name: tuple[int, int], key: Tensor, value: Tensor, window: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, Hkv, T, dh); all that may be seen now, while the last `window` - 1 are kept."""
        if name in self.tensors:
            old_key, old_value = self.tensors[name]
            key, value = torch.cat((old_key, key), 2), torch.cat((old_value, value), 2)
        first_kept = 0 if window is None else max(0, key.shape[2] - window + 1)
        self.tensors[name] = (key[:, :, first_kept:], value[:, :, first_kept:])
        return key, value

    def swap_carry(self, loop: int, last: Tensor) -> Tensor | None:
        """Keep a loop's last state (B, d); the one that was kept before, or None."""
        (before,) = self.tensors.get(("carry", loop), (None,))
        self.tensors["carry", loop] = (last,)
        return before

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002 (all layers are equally long)
        """Slots so far, padding included."""
        return 0 if self.valid is None else self.valid.shape[1]

    def get_max_cache_shape(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """No limit."""
        return -1

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Sequences in another order, for beams."""
        self._change(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every sequence so often."""
        self._change(lambda tensor: tensor.repeat_interleave(repeats, 0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Some of the sequences."""
        self._change(lambda tensor: tensor[indices.to(tensor.device)])

    def crop(self, *args: Any, **kwargs: Any) -> None:
        """Refused: windows and carried states of earlier slots are gone."""
        raise NotImplementedError("a looped model's cache cannot be cut back: assisted decoding is not supported")

    def _change(self, function: Callable[[Tensor], Tensor]) -> None:
        self.tensors = {name: tuple(map(function, tensors)) for name, tensors in self.tensors.items()}
        if self.valid is not None:
            self.valid = function(self.valid)


class Gate(nn.Module):
    """One value per head and token, from the query after RoPE, or from the residual stream entering the layer."""

    def __init__(self, config: PretrainedConfig, hidden: bool) -> None:
        super().__init__()
        heads = config.num_attention_heads
        self.weight = nn.Parameter(torch.zeros(heads, config.hidden_size if hidden else config.head_dim))
        self.bias = nn.Parameter(torch.zeros(heads))
        self.gate_norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps) if hidden else None

    def forward(self, residual: Tensor, query: Tensor) -> Tensor:
        """(B, H, T, 1) from the residual stream (B, T, d) and the query (B, H, T, dh)."""
        if self.gate_norm is not None:
            score = linear(self.gate_norm(residual), self.weight, self.bias).transpose(1, 2)
        else:
            score = torch.linalg.vecdot(query, self.weight[:, None]) + self.bias[:, None]
        return score.sigmoid()[..., None]


class Slots:
    """Where T new slots stand among S, and the cache that they go on from: RoPE tables and masks.

    Tables are made here, never kept as buffers, which models that are built on the meta device lose.
    """

    def __init__(
        self, valid: Tensor, positions: Tensor, config: PretrainedConfig, dtype: torch.dtype, cache: LoopCache | None
    ) -> None:
        """`valid` (B, S): no padding; `positions` (B, T) of the new slots."""
        self.valid, self.cache = valid, cache
        pair = torch.arange(0, config.head_dim, 2, device=valid.device, dtype=torch.float64)
        angle = positions.to(torch.float64)[:, None, :, None] * config.rope_theta ** (-pair / config.head_dim)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        self.cos = torch.cat((angle.cos(), angle.cos()), -1).to(wide)
        self.sin = torch.cat((-angle.sin(), angle.sin()), -1).to(wide)

    def turn(self, heads: Tensor) -> Tensor:
        """RoPE on heads (B, n, T, dh)."""
        wide = heads.to(self.cos.dtype)
        return (wide * self.cos + wide.roll(heads.shape[-1] // 2, -1) * self.sin).to(heads.dtype)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, window: int | None = None) -> Tensor:
        """Causal attention of the new slots over the last slots, those that `key` (B, Hkv, K, dh) holds."""
        queries, keys = query.shape[2], key.shape[2]
        device = query.device
        distance = torch.arange(keys - queries, keys, device=device)[:, None] - torch.arange(keys, device=device)
        seen = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        mask = seen & self.valid[:, None, None, -keys:] | (distance == 0)  # padding sees itself: no row is empty
        grouped = query.shape[1] != key.shape[1]
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=grouped)


class Attention(nn.Module):
    """Projections of one layer, the same in every loop."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__()
        self.loops = config.loop_settings()
        self.head_dim = config.head_dim
        kv_width = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.plt_gate = None

    def forward(
        self,
        x: Tensor,
        residual: Tensor,
        slots: Slots,
        name: tuple[int, int],
        first: KeyValue | None,
        gate: Gate | None,
    ) -> tuple[Tensor, KeyValue]:
        """Output (B, T, d) and the keys and values that later loops share; `first` is loop 1's, None in loop 1."""
        query = slots.turn(self._heads(self.q_proj(x)))
        shares = first is not None and self.loops["share_kv"]
        windowed = first is not None and self.loops["local"]
        if shares and not windowed:
            return self._merge(slots.attend(query, *first)), first
        own = (slots.turn(self._heads(self.k_proj(x))), self._heads(self.v_proj(x)))
        if slots.cache is not None:
            own = slots.cache.extend(name, *own, self.loops["window"] if shares else None)
        if not windowed:
            return self._merge(slots.attend(query, *own)), own
        full = slots.attend(query, *(first if shares else own))
        local = slots.attend(query, *own, self.loops["window"])
        share = self.loops["fixed_gate"] if gate is None else gate(residual, query)
        return self._merge(share * full + (1 - share) * local), own

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)

    def _merge(self, attended: Tensor) -> Tensor:
        return self.o_proj(attended.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map `x` (..., d) to (..., d)."""
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """Attention and MLP around a residual stream."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(
        self, x: Tensor, slots: Slots, name: tuple[int, int], first: KeyValue | None, gate: Gate | None
    ) -> tuple[Tensor, KeyValue]:
        """One layer, called `name` (loop, layer) in the cache, on the residual stream `x` (B, T, d)."""
        attended, key_value = self.self_attn(self.input_layernorm(x), x, slots, name, first, gate)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), key_value


class LoopedPreTrainedModel(PreTrainedModel):
    """Loading that accepts exactly the tensors of the model."""

    config_class = IQuestPLTCoderConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = False
    _supports_sdpa = True
    _no_split_modules = ["DecoderLayer"]

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **kwargs: Any) -> Any:
        """As in transformers, but a tensor that is missing, unexpected or of another shape is an error."""
        kwargs["ignore_mismatched_sizes"] = True  # they are named below
        model, info = super().from_pretrained(*args, output_loading_info=True, **kwargs)
        wrong = {kind: info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") if info.get(kind)}
        if wrong:
            found = "; ".join(f"{kind}: {', '.join(sorted(map(str, names)))}" for kind, names in wrong.items())
            raise ValueError(f"the checkpoint does not fit its config.json: {found}")
        return (model, info) if output_loading_info else model

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, 0.0, self.config.initializer_range)
        elif isinstance(module, nn.RMSNorm):
            nn.init.ones_(module.weight)
        elif isinstance(module, Gate):
            nn.init.zeros_(module.weight)
            nn.init.zeros_(module.bias)


class IQuestPLTCoderModel(LoopedPreTrainedModel):
    """Embedding, the layers, which run in every loop, and the final norm."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config)
        self.loops = config.loop_settings()
        if self.loops["num_loops"] < 2:
            raise ValueError(f"the model has {self.loops['num_loops']} loops; with one loop it is a Llama")
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        if self.loops["local"] and self.loops["fixed_gate"] is None:
            self.add_gates(config)
        self.post_init()

    def add_gates(self, config: PretrainedConfig) -> None:
        """One gate per layer, which all later loops share."""
        for layer in self.layers:
            layer.self_attn.plt_gate = Gate(config, self.loops["hidden_gate"])

    def gate_of(self, index: int) -> Gate | None:
        """The gate of a layer, or None when it is fixed or there is nothing to mix."""
        return self.layers[index].self_attn.plt_gate

    def forward(self, input_ids: Tensor, slots: Slots) -> Tensor:
        """The normalised state (B, T, d) of the last loop at the new slots."""
        embedded = x = self.embed_tokens(input_ids)
        shared = [None] * len(self.layers)
        for loop in range(self.loops["num_loops"]):
            if loop > 0:
                x = self._next_input(x, embedded, slots, loop)
            for index, layer in enumerate(self.layers):
                gate = self.gate_of(index) if loop > 0 else None
                x, key_value = layer(x, slots, (loop, index), shared[index], gate)
                shared[index] = key_value if loop == 0 else shared[index]
            if self.loops["norm_per_loop"]:
                x = self.norm(x)
        return x if self.loops["norm_per_loop"] else self.norm(x)

    def _next_input(self, previous: Tensor, embedded: Tensor, slots: Slots, loop: int) -> Tensor:
        """A later loop's input from the loop before it; nothing is carried out of padding."""
        if self.loops["clp"]:
            carried = previous * slots.valid[:, -previous.shape[1] :, None].to(previous.dtype)
            before = None if slots.cache is None else slots.cache.swap_carry(loop, carried[:, -1])
            previous = pad(carried, (0, 0, 1, 0))[:, :-1]
            if before is not None:
                previous = torch.cat((before[:, None], previous[:, 1:]), 1)
        previous = previous * self.loops["hidden_scale"]
        return previous + embedded * self.loops["emb_scale"] if self.loops["reinject"] else previous


class IQuestPLTCoderForCausalLM(LoopedPreTrainedModel, GenerationMixin):
    """A looped model with its head."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    model_class = IQuestPLTCoderModel

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config)
        self.model = self.model_class(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: DynamicCache | None = None,
        past_key_values: DynamicCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Logits of `input_ids` (B, T), which go on from the cache.

        `attention_mask` (B, S) is 0 on padding; without one, new slots are no padding. transformers calls the cache
        `past_key_values` or `cache`, by version; both names are taken, and the cache is changed in place and returned.
        """
        self._refuse_unsupported(input_ids, attention_mask, kwargs)
        cache = past_key_values if cache is None else cache
        if cache is None and (use_cache or (use_cache is None and not self.training)):
            cache = LoopCache()
        cache = None if cache is None else LoopCache.adopt(cache)
        hidden = self.model(input_ids, self._slots(input_ids, attention_mask, position_ids, cache))
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(hidden[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.vocab_size, **kwargs)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache)

    def _refuse_unsupported(self, input_ids: Tensor | None, attention_mask: Any, kwargs: dict[str, Any]) -> None:
        if input_ids is None:
            raise ValueError(
                "input_ids is missing; a looped model adds the embeddings again and takes no inputs_embeds"
            )
        if attention_mask is not None and (not torch.is_tensor(attention_mask) or attention_mask.dim() != 2):
            raise ValueError("attention_mask must be (batch, slots): 1 on tokens, 0 on padding")
        wanted = [name for name in ("output_attentions", "output_hidden_states") if kwargs.get(name)]
        if wanted:
            raise ValueError(f"{' and '.join(wanted)} is not supported by looped models")

    def _slots(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None, cache: LoopCache | None
    ) -> Slots:
        batch, new = input_ids.shape
        before = 0 if cache is None else cache.get_seq_length()
        if attention_mask is not None and attention_mask.shape != (batch, before + new):
            raise ValueError(
                f"attention_mask has shape {tuple(attention_mask.shape)}; {before} slots in the cache and {new} new "
                f"ones of {batch} sequences need {(batch, before + new)}"
            )
        if attention_mask is not None:
            valid = attention_mask.bool()
        else:
            valid = torch.ones(batch, new, dtype=torch.bool, device=input_ids.device)
            valid = valid if before == 0 else torch.cat((cache.valid, valid), 1)
        if cache is not None:
            cache.valid = valid
        if position_ids is None:
            position_ids = (valid.long().cumsum(1) - 1).clamp(min=0)[:, -new:]
        return Slots(valid, position_ids, self.config, self.lm_head.weight.dtype, cache)


class LoopVariantForCausalLM(IQuestPLTCoderForCausalLM):
    """The same under a name that engines which only know LoopCoder-v2's settings refuse: the model uses others too."""
