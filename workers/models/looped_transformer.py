"""The looped transformer in training form: R passes of the same layers over a whole sequence.

One class covers every published variant through the knobs of `ModelConfig`: plain and looped transformers, cross-loop
parallelism, shared keys and values, gated sliding-window attention (PLT, arXiv 2510.24824; LoopCoder-v2, arXiv
2606.18023).

    E    = Embed(ids)                                            (B, S, d)
    X(1) = E;   X(r) = b * Shift(h(r-1)) + a * E     r >= 2      Shift: one slot to the right, zero in slot 0, with CLP;
                                                                 identity without. The E term only with `reinject`.
    y(r) = Layers(X(r));   n(r) = RMSNorm(y(r))
    h(r) = n(r) with `norm_per_loop`, else y(r)
    logits of loop r = Head(n(r));  the model's logits are those of loop R

Tensor names are Hugging Face Llama's, plus `self_attn.plt_gate.*`. Parallel over tokens and serial over loops: the one
pass per token of cross-loop parallelism is `workers.decoding`'s. Shapes: B sequences, S slots, d width, V token ids.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from workers.config import ModelConfig
from workers.models.attention import KeyValue
from workers.models.initialisation import initialise
from workers.models.layer import DecoderLayer
from workers.models.norm import RMSNorm
from workers.models.rotary import rotary_tables


@dataclass(frozen=True)
class LoopOutput:
    """What a forward pass gives; all but `logits` are None unless `every_loop` was asked for."""

    logits: Tensor
    """(B, S, V) of the last loop."""
    loop_logits: tuple[Tensor, ...] | None = None
    """(B, S, V) for each of the R loops."""
    loop_hidden: tuple[Tensor, ...] | None = None
    """h(r), (B, S, d) for each of the R loops: what loop r hands on."""
    gates: tuple[Tensor, ...] | None = None
    """Gate values before polarity, (L, B, S, H) for each of loops 2..R; empty without a learned gate."""


class LayerStack(nn.Module):
    """Embedding, the L layers and the final norm: the tensors under `model.`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class LoopedTransformer(nn.Module):
    """A transformer whose layers run `config.num_loops` times; `config` is kept in normalised form.

    Weights are initialised from `seed`, the same ones on every device and, up to rounding, in every type.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config.normalised()
        with torch.device("meta"):
            self.model = LayerStack(self.config)
            head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            self.lm_head = None if config.tie_word_embeddings else head
        self.to(dtype).to_empty(device=device)
        initialise(self, seed)

    def forward(self, input_ids: Tensor, every_loop: bool = False) -> LoopOutput:
        """Logits of every slot of `input_ids` (B, S), integer token ids.

        `max_position_embeddings` is not enforced here: RoPE has no end, and what a model was trained on is its user's.
        """
        embedded: Tensor = self.model.embed_tokens(input_ids)
        x, first = embedded, None
        normalised: list[Tensor] = []
        hidden: list[Tensor] = []
        gates: list[Tensor] = []
        for loop in range(self.config.num_loops):
            if loop > 0:
                x = self.loop_input(hidden[-1], embedded)
            x, first, loop_gates = self.run_layers(x, first)
            last = loop == self.config.num_loops - 1
            if last or every_loop or self.config.norm_per_loop:
                normalised.append(self.model.norm(x))
            hidden.append(normalised[-1] if self.config.norm_per_loop else x)
            gates += [torch.stack(loop_gates).transpose(2, 3)] if every_loop and loop_gates else []
        if not every_loop:
            return LoopOutput(self.head(normalised[-1]))
        loop_logits = tuple(self.head(n) for n in normalised)
        return LoopOutput(loop_logits[-1], loop_logits, tuple(hidden), tuple(gates))

    def loop_input(self, previous: Tensor, embedded: Tensor) -> Tensor:
        """X(r) of a later loop from h(r-1) and E, both (B, S, d)."""
        carried = pad(previous, (0, 0, 1, 0))[:, :-1] if self.config.clp else previous
        return combine(carried, embedded, self.config)

    def run_layers(self, x: Tensor, first: list[KeyValue] | None) -> tuple[Tensor, list[KeyValue], list[Tensor]]:
        """All layers once on `x` (B, S, d): the residual stream, loop 1's keys and values, the gate values."""
        tables = rotary_tables(x.shape[1], self.config.head_dim, self.config.rope_theta, x)
        own, gates = [], []
        for index, layer in enumerate(self.model.layers):
            x, attended = layer(x, tables, None if first is None else first[index])
            own.append(attended.key_value)
            gates += [] if attended.gate is None else [attended.gate]
        return x, own if first is None else first, gates

    def head(self, normalised: Tensor) -> Tensor:
        """Logits (..., V) of a final-normalised state (..., d)."""
        weight = self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        return linear(normalised, weight)


def combine(carried: Tensor, embedded: Tensor, config: ModelConfig) -> Tensor:
    """b * carried + a * E (the E term only with `reinject`), for tensors (..., d) that broadcast."""
    scaled = carried if config.hidden_scale == 1.0 else carried * config.hidden_scale
    return torch.add(scaled, embedded, alpha=config.emb_scale) if config.reinject else scaled
