"""Decode steps by compiled code: embedding, all layers in every loop and the head, in one call.

Between the stored types it computes in float32, where PyTorch rounds every intermediate result to the model's type.
"""

import ctypes

import torch
from torch import Tensor

from workers.config import ModelConfig
from workers.decoding.cache import Cache
from workers.decoding.memory import zeros
from workers.decoding.native.library import library, thread_count
from workers.decoding.native.weights import NativeWeights
from workers.decoding.shared_cache import SharedCache
from workers.models.rotary import RotaryTables

_TENSORS = (
    *("input_norm", "query_key_value", "output", "mlp_norm", "gate_up", "down"),
    *("gate_weight", "gate_bias"),
)
_NUMBERS = (
    *("batch", "loops", "layers", "width", "inner", "heads", "kv_heads", "head_dim", "vocabulary"),
    *("places", "base", "ring", "window"),
    *("is_bfloat16", "shared", "gate_reads_query", "parallel", "norm_per_loop", "reinject"),
)


class _Layer(ctypes.Structure):
    """`Layer` of step.cpp: addresses."""

    _fields_ = [(name, ctypes.c_void_p) for name in (*_TENSORS, "places")]


class _Model(ctypes.Structure):
    """`Model` of step.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in _NUMBERS),
        *((name, ctypes.c_float) for name in ("eps", "fixed_share", "emb_scale", "hidden_scale")),
        *((name, ctypes.c_void_p) for name in ("layer", "embedding", "head", "norm", "cos", "sin", "carry")),
    ]


class NativeStep:
    """Takes the steps of one decoder: `weights` over the places of its `cache` and its `carry` (B, R-1, d).

    `tables` are RoPE's of every slot. `code` is `library()`, or one that was compiled otherwise.
    """

    def __init__(
        self,
        weights: NativeWeights,
        config: ModelConfig,
        cache: Cache,
        carry: Tensor,
        tables: RotaryTables,
        code: ctypes.CDLL | None = None,
    ) -> None:
        self._library = code or library()
        self._kept = (weights, cache.places, carry, tables)
        self._dtype, self._shape = weights.dtype, (carry.shape[0], weights.vocabulary)
        self._layers = (_Layer * len(weights.layers))()
        for own, layer, places in zip(self._layers, weights.layers, cache.places, strict=True):
            for name in _TENSORS:
                tensor = getattr(layer, name) if config.has_gate or name not in ("gate_weight", "gate_bias") else None
                setattr(own, name, None if tensor is None else tensor.data_ptr())
            own.places = places.data_ptr()
        shared = cache if isinstance(cache, SharedCache) else None
        self._model = _Model(
            batch=carry.shape[0],
            loops=config.num_loops,
            layers=len(weights.layers),
            width=config.hidden_size,
            inner=weights.inner,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            vocabulary=weights.vocabulary,
            places=cache.places.shape[-2],
            base=shared.base if shared else 0,
            ring=shared.ring_size if shared else 0,
            window=config.window or 0 if config.local == "swa" else 0,
            is_bfloat16=weights.dtype == torch.bfloat16,
            shared=shared is not None,
            gate_reads_query=config.gate_input == "query",
            parallel=config.parallel_loops,
            norm_per_loop=config.norm_per_loop,
            reinject=config.reinject,
            eps=config.rms_norm_eps,
            fixed_share=config.fixed_gate or 0.0,
            emb_scale=config.emb_scale,
            hidden_scale=config.hidden_scale,
            layer=ctypes.addressof(self._layers),
            embedding=weights.embedding.data_ptr(),
            head=weights.head.data_ptr(),
            norm=weights.norm.data_ptr(),
            cos=tables.cos.data_ptr(),
            sin=tables.sin.data_ptr(),
            carry=carry.data_ptr(),
        )
        self._address = ctypes.addressof(self._model)
        self._work = zeros((0,), torch.float32, carry.device)

    def __call__(self, ids: Tensor, slot: int) -> Tensor:
        """Append one token id per sequence, `ids` (B,), at `slot`; logits (B, V).

        An `IndexError` says that an id is none of the vocabulary's; nothing is appended then.
        """
        ids, logits = ids.long().contiguous(), torch.empty(self._shape, dtype=torch.float32, device="cpu")
        threads = thread_count()
        floats = self._library.plt_step_floats(self._address, threads, slot)
        if self._work.numel() < floats:
            self._work = zeros((floats + floats // 4,), torch.float32, self._work.device)
        work = self._work.data_ptr()
        if not self._library.plt_step(self._address, threads, slot, ids.data_ptr(), work, logits.data_ptr()):
            raise IndexError(f"token ids are {ids.tolist()}; the vocabulary has 0 to {self._shape[1] - 1}")
        return logits.to(self._dtype)
