"""The compiled counterpart of `workers.decoding.slot_pass`: all layers for the rows of one slot in one call.

Between the stored types it computes in float32, where PyTorch rounds every intermediate result to the model's type.
"""

import ctypes

import torch
from torch import Tensor

from workers.config import ModelConfig
from workers.decoding.cache import Cache
from workers.decoding.memory import zeros
from workers.decoding.native.library import library
from workers.decoding.native.weights import NativeWeights
from workers.decoding.shared_cache import SharedCache
from workers.models.rotary import rotary_tables

_TENSORS = (
    "input_norm",
    "query_key_value",
    "output",
    "mlp_norm",
    "gate_up",
    "down",
    "gate_weight",
    "gate_bias",
)
_SIZES = (
    *("threads", "batch", "rows", "first", "loops", "layers", "width", "inner", "heads", "kv_heads", "head_dim"),
    *("slot", "places", "base", "ring", "window", "shared", "gate_reads_query"),
)


class _Layer(ctypes.Structure):
    """`Layer` of slot_pass.cpp: addresses."""

    _fields_ = [(name, ctypes.c_void_p) for name in (*_TENSORS, "places")]


class _Pass(ctypes.Structure):
    """`Pass` of slot_pass.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in _SIZES),
        *((name, ctypes.c_float) for name in ("eps", "fixed_share")),
        *((name, ctypes.c_void_p) for name in ("cos", "sin")),
    ]


class NativePass:
    """Runs passes of one decoder: `weights` over the places of its `cache`, for `batch_size` sequences.

    `code` is `library()`, or one that was compiled otherwise.
    """

    def __init__(
        self,
        weights: NativeWeights,
        config: ModelConfig,
        cache: Cache,
        batch_size: int,
        max_length: int,
        code: ctypes.CDLL | None = None,
    ) -> None:
        self._weights = weights
        self._library = code or library()
        self._tables = rotary_tables(max_length, config.head_dim, config.rope_theta, torch.empty(0))
        self._places = cache.places
        self._layers = (_Layer * len(weights.layers))()
        for own, layer, places in zip(self._layers, weights.layers, self._places, strict=True):
            for name in _TENSORS:
                tensor = getattr(layer, name) if config.has_gate or name not in ("gate_weight", "gate_bias") else None
                setattr(own, name, None if tensor is None else tensor.data_ptr())
            own.places = places.data_ptr()
        shared = cache if isinstance(cache, SharedCache) else None
        self._pass = _Pass(
            batch=batch_size,
            loops=config.num_loops,
            layers=len(weights.layers),
            width=config.hidden_size,
            inner=weights.inner,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            places=self._places.shape[-2],
            base=shared.base if shared else 0,
            ring=shared.ring_size if shared else 0,
            window=config.window or 0 if config.local == "swa" else 0,
            shared=shared is not None,
            gate_reads_query=config.gate_input == "query",
            eps=config.rms_norm_eps,
            fixed_share=config.fixed_gate or 0.0,
        )
        self._work = torch.empty(0)

    def run(self, x: Tensor, first: int, slot: int) -> Tensor:
        """Residual rows (B, n, d) after all layers at `slot`, from rows `x` (B, n, d) of loops first..first+n-1."""
        residual = x.to(torch.float32, copy=True).contiguous()
        it = self._pass
        it.threads, it.rows, it.first, it.slot = torch.get_num_threads(), x.shape[1], first, slot
        it.cos, it.sin = self._tables.cos[slot].data_ptr(), self._tables.sin[slot].data_ptr()
        work = self._room(self._library.plt_layers_work(ctypes.byref(it)))
        self._library.plt_run_layers(
            ctypes.byref(it), self._layers, x.dtype == torch.bfloat16, residual.data_ptr(), work
        )
        return residual.to(x.dtype)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits (B, V) of final-normalised `hidden` (B, d)."""
        weights, threads = self._weights, torch.get_num_threads()
        rows, width = hidden.shape
        inputs = hidden.float().contiguous()  # held until the call is over
        logits = torch.empty(rows, weights.vocabulary)
        self._library.plt_product(
            threads,
            rows,
            width,
            weights.vocabulary,
            hidden.dtype == torch.bfloat16,
            weights.head.data_ptr(),
            inputs.data_ptr(),
            self._room(self._library.plt_product_work(threads, rows, width)),
            logits.data_ptr(),
        )
        return logits.to(hidden.dtype)

    def _room(self, floats: int) -> int:
        """The address of a buffer of so many floats, in whole cache lines."""
        if self._work.numel() < floats:
            self._work = zeros((floats + floats // 8,), torch.float32, torch.device("cpu"))
        return self._work.data_ptr()
