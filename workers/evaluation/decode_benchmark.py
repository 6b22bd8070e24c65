"""Decode latency and KV memory of one architecture, beside its non-looped twin (the same weights, one loop).

Weights are random, at the size and in the precision that is to be deployed. Decoding is real: caches filled by a
prefill of `context` tokens, then greedy steps one token at a time. The decoder is first checked against the training
form. Model and twin take turns step by step. The caller holds the device alone.

Metrics, for the first batch size as written and for further ones under `b{size}/`:

    decode/ms_per_token, decode/ms_per_token_p95   of one step, median and 95th percentile
    decode/latency_ratio                           median over the pairs of steps, model over twin
    decode/tokens_per_second                       of the whole batch, at the median
    decode/roofline_fraction                       time to read weights and caches once at measured bandwidth, over ours
    prefill/ms                                     of the whole context, whole batch
    kv/bytes_per_sequence, kv/ratio                at `context` slots, counted from the tensors; over the twin's
    kv/carry_bytes_per_sequence                    hidden vectors carried from slot to slot
"""

import time
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workers.config import BenchmarkConfig, ModelConfig
from workers.decoding import Decoder, DecoderWeights
from workers.evaluation.decode_check import CHECKED_STEPS, check_decoder
from workers.evaluation.decode_timing import WARM_UP_STEPS, Clock, time_prefill, time_steps
from workers.evaluation.hardware import hardware, read_bandwidth
from workers.models import LoopedTransformer, share_weights

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class _Subject:
    """The model under test and its twin, which is the model itself when that has one loop."""

    model: LoopedTransformer
    twin: LoopedTransformer
    weights: DecoderWeights

    @property
    def is_own_twin(self) -> bool:
        return self.twin is self.model


def measure(
    model_config: ModelConfig, benchmark: BenchmarkConfig, seed: int, clock: Clock = time.perf_counter
) -> tuple[dict[str, float], dict[str, Any]]:
    """Metrics and plain facts (hardware, bandwidth in bytes per second, the check's error, steps timed).

    A `RuntimeError` says that decoding is not right.
    """
    steps = benchmark.generate * benchmark.repeats
    subject = _build(model_config, benchmark, seed)
    info: dict[str, Any] = {
        "hardware": hardware(),
        "read_bandwidth": read_bandwidth(),
        "precision": benchmark.precision,
        "context": benchmark.context,
        "timed_steps": steps,
        "twin": "the model itself" if subject.is_own_twin else "the same weights, one loop",
        "check_error": {},
    }
    metrics: dict[str, float] = {}
    for position, size in enumerate(benchmark.batch_sizes):
        measured, error = _measure_batch(subject, benchmark, size, seed, clock)
        prefix = "" if position == 0 else f"b{size}/"
        metrics |= {prefix + name: value for name, value in measured.items()}
        info["check_error"][f"b{size}"] = error
    return metrics, info


def _build(config: ModelConfig, benchmark: BenchmarkConfig, seed: int) -> _Subject:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = LoopedTransformer(config, seed=seed, device=device, dtype=_DTYPES[benchmark.precision])
    twin = model if config.num_loops == 1 else share_weights(model, replace(config, num_loops=1))
    return _Subject(model, twin, DecoderWeights(model, benchmark.batch_sizes[0] * config.num_loops))


def _measure_batch(
    subject: _Subject, benchmark: BenchmarkConfig, size: int, seed: int, clock: Clock
) -> tuple[dict[str, float], float]:
    """Metrics of one batch size, and the relative error of its check."""
    steps = benchmark.generate * benchmark.repeats
    length = benchmark.context + WARM_UP_STEPS + steps
    decoders = [
        Decoder(model, size, length, weights=subject.weights)
        for model in ([subject.model] if subject.is_own_twin else [subject.model, subject.twin])
    ]
    ids = _random_ids(subject.model, size, length, seed)
    window = subject.model.config.window or 0
    error = check_decoder(subject.model, decoders[0], ids[:, : min(length, window + 2 * CHECKED_STEPS)])
    prefill_seconds = [time_prefill(decoder, ids[:, : benchmark.context], clock) for decoder in decoders]
    kv_bytes = [decoder.kv_bytes() for decoder in decoders]
    carry_bytes = decoders[0].carry_bytes()
    seconds = time_steps(decoders, ids[:, benchmark.context], steps, clock)
    typical = median(seconds[0])
    once = subject.weights.read_bytes() + size * (kv_bytes[0] + carry_bytes)
    return {
        "decode/ms_per_token": 1e3 * typical,
        "decode/ms_per_token_p95": 1e3 * float(np.percentile(seconds[0], 95)),
        "decode/latency_ratio": median(own / twin for own, twin in zip(seconds[0], seconds[-1], strict=True)),
        "decode/tokens_per_second": size / typical,
        "decode/roofline_fraction": once / read_bandwidth() / typical,
        "prefill/ms": 1e3 * prefill_seconds[0],
        "kv/bytes_per_sequence": float(kv_bytes[0]),
        "kv/carry_bytes_per_sequence": float(carry_bytes),
        "kv/ratio": kv_bytes[0] / kv_bytes[-1],
    }, error


def _random_ids(model: LoopedTransformer, size: int, length: int, seed: int) -> Tensor:
    """Token ids (size, length) on the model's device."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(model.config.vocab_size, (size, length), generator=generator)
    return ids.to(model.model.norm.weight.device)
