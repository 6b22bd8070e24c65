"""Autoregressive decoding with real caches: prefill in any chunks, then one token at a time.

With CLP (and for one loop) a token costs one pass over the weights, R rows per sequence; without it the loops run one
after another. The R rows of slot t (PLT, arXiv 2510.24824, Algorithm 1, in slot view):

    row 1: E_t        row r: b * h(r-1)_{t-1} + a * E_t        logits = Head(h(R)_t)        keep h(1..R-1)_t

All sequences of a batch have the same length. On CUDA a step is recorded once as a CUDA graph and replayed; on a CPU it
is one call of code compiled for this machine (`workers.decoding.native`), or PyTorch's operators where that cannot be.
Prefill runs the loops one after another in either case, like training.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding

from workers.decoding.cache import Cache, byte_count
from workers.decoding.chunk import chunk_layer
from workers.decoding.graph import StepGraph
from workers.decoding.native import NativeStep
from workers.decoding.own_cache import OwnCache
from workers.decoding.shared_cache import SharedCache
from workers.decoding.slot import Slot, SlotMaker
from workers.decoding.slot_pass import run_slot
from workers.decoding.weights import DecoderWeights
from workers.models import LoopedTransformer
from workers.models.looped_transformer import combine
from workers.models.rotary import rotary_tables

MAX_CHUNK = 1024
"""Slots that a prefill takes at once; longer ones are cut, which bounds its masks and activations."""


class Decoder:
    """Decodes `batch_size` sequences of up to `max_length` slots with a snapshot of the model's weights.

    `max_length` may exceed `max_position_embeddings`: RoPE has no end, only training had one. `weights` of another
    decoder of the same model can be shared. `static_shapes` hides unused cache places by masks instead of slicing; None
    means on CUDA, whose graphs need it. Compiled steps are taken wherever they can be, unless `compiled` is False or
    shapes are static. Nothing here keeps gradients.
    """

    def __init__(
        self,
        model: LoopedTransformer,
        batch_size: int,
        max_length: int,
        *,
        weights: DecoderWeights | None = None,
        static_shapes: bool | None = None,
        compiled: bool = True,
    ) -> None:
        if batch_size < 1 or max_length < 1:
            raise ValueError(f"batch_size is {batch_size} and max_length is {max_length}; both must be 1 or more")
        self.config = model.config
        self.batch_size = batch_size
        self.max_length = max_length
        self.length = 0
        """Slots filled so far."""
        with torch.inference_mode():
            rows = batch_size * (self.config.num_loops if self.config.parallel_loops else 1)
            self.weights = weights or DecoderWeights(model, rows)
            table = self.weights.embedding
            kind = OwnCache if self.config.kv_mode == "per_loop" else SharedCache
            self.cache: Cache = kind(self.config, batch_size, max_length, table.device, table.dtype)
            carried = self.config.num_loops - 1 if self.config.clp else 0
            self.carry = table.new_zeros(batch_size, carried, self.config.hidden_size)
            """h(1)..h(R-1) of the previous slot, (B, R-1, d), zero before the first one; no rows without CLP."""
            tables = rotary_tables(max_length, self.config.head_dim, self.config.rope_theta, table)
            self._slots = SlotMaker(self.config, tables)
            native = self.weights.native if compiled and not static_shapes else None
            self._native = None
            if native is not None:
                self._native = NativeStep(native, self.config, self.cache, self.carry, tables)
        self._static = table.is_cuda if static_shapes is None else static_shapes
        self._graph = StepGraph(self._masked_step, batch_size, self.carry) if table.is_cuda else None

    @torch.inference_mode()
    def prefill(self, ids: Tensor, last_only: bool = False) -> Tensor:
        """Append `ids` (B, T) to every sequence; logits (B, T, V) of those slots, or (B, 1, V) of the last one."""
        self._claim(ids, 2)
        hidden = [self._append(part) for part in torch.split(ids, MAX_CHUNK, 1)]
        return self._head(hidden[-1][:, -1:] if last_only else torch.cat(hidden, 1))

    @torch.inference_mode()
    def step(self, ids: Tensor) -> Tensor:
        """Append one token id per sequence, `ids` (B,); logits (B, V) of the new slot."""
        stop = self._claim(ids, 1)
        if self._graph is not None:
            logits = self._graph(ids, self.length)
        elif self._static:
            logits = self._masked_step(ids, torch.tensor([self.length], device=ids.device))
        elif self._native is not None:
            logits = self._native(ids, self.length)
        else:
            logits = self._step(ids, self._slots.cut(self.length))
        self.length = stop
        return logits

    @torch.inference_mode()
    def reset(self) -> None:
        """Start over with empty sequences, in the same memory."""
        self.cache.forget(self.length)
        self.length = 0
        self.carry.zero_()

    @property
    def engine(self) -> str:
        """What takes the steps: `cuda graph`, `compiled` or `torch`."""
        if self._graph is not None:
            return "cuda graph"
        return "torch" if self._native is None else "compiled"

    def kv_bytes(self) -> int:
        """Bytes of keys and values that one sequence occupies at its present length, counted from the tensors."""
        return self.cache.used_bytes(self.length)

    def allocated_bytes(self) -> int:
        """Bytes of keys and values allocated for one sequence: `kv_bytes` at `max_length`."""
        return self.cache.used_bytes(self.max_length)

    def carry_bytes(self) -> int:
        """Bytes of hidden vectors that one sequence carries from slot to slot; 0 without CLP."""
        return byte_count(self.carry[:1])

    def _append(self, ids: Tensor) -> Tensor:
        """One chunk `ids` (B, T) through every loop; h(R), (B, T, d)."""
        stop = self.length + ids.shape[1]
        tables = self._slots.tables(self.length, stop)
        embedded = x = embedding(ids, self.weights.embedding)
        for loop in range(self.config.num_loops):
            if loop > 0:
                x = self._next_loop(x, embedded, loop)
            for index, layer in enumerate(self.weights.layers):
                x = chunk_layer(layer, index, x, loop, self.length, tables, self.cache, self.config)
            x = self._hand_on(x)
        self.length = stop
        return x

    def _masked_step(self, ids: Tensor, index: Tensor) -> Tensor:
        return self._step(ids, self._slots.masked(index))

    def _step(self, ids: Tensor, slot: Slot) -> Tensor:
        embedded = embedding(ids, self.weights.embedding)[:, None]
        if self.config.parallel_loops:
            return self._parallel_loops(embedded, slot)
        x = embedded
        for loop in range(self.config.num_loops):
            x = combine(x, embedded, self.config) if loop > 0 else x
            x = self._hand_on(run_slot(self.weights.layers, x, loop, slot, self.cache, self.config))
        return self._head(x[:, 0])

    def _parallel_loops(self, embedded: Tensor, slot: Slot) -> Tensor:
        """One pass with a row per loop on `embedded` (B, 1, d); logits (B, V)."""
        rows = embedded
        if self.config.num_loops > 1:
            rows = torch.cat((embedded, combine(self.carry, embedded, self.config)), 1)
        hidden = self._hand_on(run_slot(self.weights.layers, rows, 0, slot, self.cache, self.config))
        self.carry.copy_(hidden[:, :-1])
        return self._head(hidden[:, -1])

    def _next_loop(self, previous: Tensor, embedded: Tensor, loop: int) -> Tensor:
        """Input (B, T, d) of `loop` (from 0) for a chunk; keeps what the next chunk's first slot needs."""
        if not self.config.clp:
            return combine(previous, embedded, self.config)
        carry = self.carry[:, loop - 1]
        shifted = torch.cat((carry[:, None], previous[:, :-1]), 1)
        carry.copy_(previous[:, -1])
        return combine(shifted, embedded, self.config)

    def _hand_on(self, residual: Tensor) -> Tensor:
        """h(r) of a loop's last residual stream."""
        return self.weights.normalise(residual) if self.config.norm_per_loop else residual

    def _head(self, hidden: Tensor) -> Tensor:
        """Logits of h(R): the final norm is applied exactly once."""
        return self.weights.head(hidden if self.config.norm_per_loop else self.weights.normalise(hidden))

    def _claim(self, ids: Tensor, dimensions: int) -> int:
        """Check that `ids` fit; the length after them."""
        if ids.dim() != dimensions or ids.shape[0] != self.batch_size:
            wanted = f"({self.batch_size}, T)" if dimensions == 2 else f"({self.batch_size},)"
            raise ValueError(f"ids have shape {tuple(ids.shape)}; this decoder takes {wanted}")
        stop = self.length + (ids.shape[1] if dimensions == 2 else 1)
        if stop > self.max_length or stop == self.length:
            raise ValueError(
                f"{stop - self.length} more slots after {self.length} do not fit max_length {self.max_length}; append "
                "at least one, and reset() or make a longer decoder for more"
            )
        return stop
