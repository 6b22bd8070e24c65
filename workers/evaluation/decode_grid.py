"""Decode latency of several loop settings of one shape, over batch sizes and contexts, each beside its physical floor.

Settings are the plain transformer (R = 1) and every asked-for variant at every asked-for loop count above 1, with
random weights, shared where the tensors are the same. At each batch size and context every decoder is checked against
its training form, filled by a prefill and then takes greedy steps in turn with all others, so that whatever else the
machine does hits all of them alike: quote the ratios before the milliseconds.

The floor of a step is what the machine can do at best: reading the weights once per pass and every sequence's cache at
the measured read bandwidth, or the matrix products of all rows at the measured matrix rate, whichever takes longer.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from workers.config import ModelConfig, variant_knobs
from workers.config.counts import parameter_count
from workers.decoding import Decoder, DecoderWeights
from workers.evaluation.decode_check import CHECKED_STEPS, check_decoder
from workers.evaluation.decode_timing import WARM_UP_STEPS, Clock, time_prefill, time_steps
from workers.evaluation.hardware import hardware, matrix_rate, read_bandwidth
from workers.models import LoopedTransformer, share_weights

T = TypeVar("T")
PLAIN = "plain R=1"
Precision = Literal["bfloat16", "float32"]
_DTYPES: Mapping[Precision, torch.dtype] = {"bfloat16": torch.bfloat16, "float32": torch.float32}
SHAPE: Mapping[str, int] = {
    "vocab_size": 8192,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
}
"""The default: 111 million parameters, 103 million of them read per token."""


@dataclass(frozen=True, kw_only=True)
class DecodeGrid:
    """What to measure."""

    shape: Mapping[str, Any]
    """Sizes of the model, without loop knobs."""
    variants: tuple[str, ...] = ("plt", "loop")
    loops: tuple[int, ...] = (1, 2, 3)
    """Loop counts; 1 is always measured, once."""
    batch_sizes: tuple[int, ...] = (1, 4)
    contexts: tuple[int, ...] = (512,)
    """Slots in the caches when timing starts."""
    steps: int = 100
    """Timed steps of each setting at each point."""
    precision: Precision = "bfloat16"

    def __post_init__(self) -> None:
        """Refuse what cannot be measured, before anything is built."""
        for name in ("loops", "batch_sizes", "contexts"):
            values = getattr(self, name)
            if not values or min(values) < 1:
                raise ValueError(f"{name} is {values!r}; it must be one or more numbers of 1 or more")
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}; it must be 1 or more")
        if self.precision not in _DTYPES:
            raise ValueError(f"precision is {self.precision!r}; it must be bfloat16 or float32")
        self.settings()

    def settings(self) -> dict[str, ModelConfig]:
        """Every setting by name, the plain one first."""
        plain = ModelConfig(**self.shape, max_position_embeddings=self.longest)
        looped = {
            f"{variant} R={loops}": ModelConfig(
                **self.shape,
                max_position_embeddings=self.longest,
                **(variant_knobs(variant) | {"num_loops": loops}),
            )
            for variant in self.variants
            for loops in sorted({*self.loops} - {1})
        }
        return {PLAIN: plain, **looped}

    @property
    def longest(self) -> int:
        """Slots that a sequence needs."""
        return max(self.contexts) + WARM_UP_STEPS + self.steps


@dataclass(frozen=True, kw_only=True)
class DecodePoint:
    """One setting at one batch size and context."""

    setting: str
    batch_size: int
    context: int
    ms_p50: float
    """Of one step, which gives every sequence of the batch a token."""
    ms_p95: float
    over_plain: float
    """Median over pairs of neighbouring steps."""
    floor_ms: float
    bound_by: Literal["bandwidth", "matrix rate"]
    prefill_ms: float
    """To fill the caches with `context` tokens of every sequence, once."""
    kv_bytes_per_sequence: int
    """At `context` slots, counted from the tensors."""

    @property
    def floor_fraction(self) -> float:
        """The floor over the median step: 1 is as fast as the machine can be."""
        return self.floor_ms / self.ms_p50


@dataclass(frozen=True, kw_only=True)
class DecodeMeasurement:
    """A whole grid."""

    machine: Mapping[str, Any]
    """`hardware()`, `read_bandwidth` in bytes per second and `matrix_rate` in FLOP per second."""
    parameters: int
    """Of the plain setting."""
    precision: str
    steps: int
    points: tuple[DecodePoint, ...]

    def to_plain(self) -> dict[str, Any]:
        """JSON types."""
        points = [asdict(point) | {"floor_fraction": point.floor_fraction} for point in self.points]
        return {**asdict(self), "points": points}


def measure_grid(
    grid: DecodeGrid, told: Callable[[str], None] = lambda _: None, clock: Clock = time.perf_counter
) -> DecodeMeasurement:
    """Measure; `told` hears what begins. The caller holds the device alone.

    Raises:
        RuntimeError: A decoder computes something else than its training form.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = _DTYPES[grid.precision]
    told(f"the machine: {device}, {grid.precision}")
    bandwidth, rate = read_bandwidth(), matrix_rate(dtype)
    models = _models(grid.settings(), device, dtype)
    points: list[DecodePoint] = []
    for batch_size in grid.batch_sizes:
        weights = _weights(models, batch_size)
        for context in grid.contexts:
            told(f"batch {batch_size}, context {context}: {len(models)} settings, {grid.steps} steps each")
            points += _measure_point(models, weights, grid, batch_size, context, bandwidth, rate, clock)
        del weights  # before the next ones are packed
    return DecodeMeasurement(
        machine={**hardware(), "read_bandwidth": bandwidth, "matrix_rate": rate},
        parameters=parameter_count(models[PLAIN].config),
        precision=grid.precision,
        steps=grid.steps,
        points=tuple(points),
    )


def _models(settings: Mapping[str, ModelConfig], device: str, dtype: torch.dtype) -> dict[str, LoopedTransformer]:
    """A model per setting, on the tensors of one before it where it needs no others."""
    owners: list[LoopedTransformer] = []
    models: dict[str, LoopedTransformer] = {}
    for name, config in _gated_first({name: (config, config) for name, config in settings.items()}):
        for owner in owners:
            try:
                models[name] = share_weights(owner, config)
                break
            except ValueError:  # another kind of gate
                continue
        else:
            models[name] = LoopedTransformer(config, device=device, dtype=dtype)
            owners.append(models[name])
    return {name: models[name] for name in settings}


def _weights(models: Mapping[str, LoopedTransformer], batch_size: int) -> dict[str, DecoderWeights]:
    """Packed weights by setting, once for all on the same tensors; a gate that a setting lacks does not matter."""
    rows = batch_size * max(model.config.num_loops for model in models.values() if model.config.parallel_loops)
    packed: dict[tuple[int, Any], DecoderWeights] = {}
    weights: dict[str, DecoderWeights] = {}
    for name, model in _gated_first({name: (model.config, model) for name, model in models.items()}):
        tensors, config = model.model.embed_tokens.weight.data_ptr(), model.config
        gate = (config.gate_input, config.gate_polarity, config.gate_mode) if config.local == "swa" else None
        same = [made for (owner, kind), made in packed.items() if owner == tensors and gate in (kind, None)]
        if not same:
            packed[tensors, gate] = DecoderWeights(model, rows)
        weights[name] = same[0] if same else packed[tensors, gate]
    return weights


def _gated_first(settings: Mapping[str, tuple[ModelConfig, T]]) -> list[tuple[str, T]]:
    """Settings with a gate have all the tensors of those without."""
    ordered = sorted(settings.items(), key=lambda item: item[1][0].local != "swa")
    return [(name, value) for name, (_, value) in ordered]


def _measure_point(
    models: Mapping[str, LoopedTransformer],
    weights: Mapping[str, DecoderWeights],
    grid: DecodeGrid,
    batch_size: int,
    context: int,
    bandwidth: float,
    rate: float,
    clock: Clock,
) -> list[DecodePoint]:
    length = context + WARM_UP_STEPS + grid.steps
    vocab = models[PLAIN].config.vocab_size
    ids = torch.randint(vocab, (batch_size, length), generator=torch.Generator().manual_seed(0))
    ids = ids.to(models[PLAIN].model.norm.weight.device)
    decoders: dict[str, Decoder] = {}
    prefills: dict[str, float] = {}
    for name, model in models.items():
        decoders[name] = Decoder(model, batch_size, length, weights=weights[name])
        checked = min(length, (model.config.window or 0) + 2 * CHECKED_STEPS)
        check_decoder(model, decoders[name], ids[:, :checked])
        prefills[name] = time_prefill(decoders[name], ids[:, :context], clock)
    kv_bytes = {name: decoder.kv_bytes() for name, decoder in decoders.items()}
    seconds = dict(zip(decoders, time_steps(list(decoders.values()), ids[:, context], grid.steps, clock), strict=True))
    points = []
    for name, decoder in decoders.items():
        floor, bound_by = _floor(decoder, batch_size, kv_bytes[name], bandwidth, rate)
        points.append(
            DecodePoint(
                setting=name,
                batch_size=batch_size,
                context=context,
                ms_p50=1e3 * median(seconds[name]),
                ms_p95=1e3 * float(np.percentile(seconds[name], 95)),
                over_plain=_ratio(seconds[name], seconds[PLAIN]),
                floor_ms=1e3 * floor,
                bound_by=bound_by,
                prefill_ms=1e3 * prefills[name],
                kv_bytes_per_sequence=kv_bytes[name],
            )
        )
    return points


def _floor(
    decoder: Decoder, batch_size: int, kv_bytes: int, bandwidth: float, rate: float
) -> tuple[float, Literal["bandwidth", "matrix rate"]]:
    """Seconds of a step, and what they are spent on: the weights are read once per pass, the head once."""
    config, weights = decoder.config, decoder.weights
    passes = 1 if config.parallel_loops else config.num_loops
    head = weights.head.read_bytes
    layers = weights.read_bytes() - head
    read = passes * layers + head + batch_size * (kv_bytes + decoder.carry_bytes())
    products = (layers * config.num_loops + head) / weights.embedding.element_size()
    reading, computing = read / bandwidth, 2 * batch_size * products / rate
    return (reading, "bandwidth") if reading >= computing else (computing, "matrix rate")


def _ratio(times: Sequence[float], others: Sequence[float]) -> float:
    return median(own / other for own, other in zip(times, others, strict=True))
