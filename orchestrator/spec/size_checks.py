"""Sizes of one point that no machine holds, and token budgets that pay for no step."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.spec.limits import MOST_CACHE_BYTES, MOST_PARAMETERS, MOST_SLOTS
from orchestrator.spec.problem import Path
from workers.config import ModelConfig
from workers.config.counts import kv_bytes_per_sequence, parameter_count

if TYPE_CHECKING:
    from orchestrator.configuration import Configuration
    from orchestrator.spec.study_spec import StudySpec


def size_problems(spec: "StudySpec", configuration: "Configuration") -> Iterator[tuple[Path, str]]:
    """What is too large or too small at one point: where, and a sentence."""
    yield from _model(("model",), configuration.model)
    train, seq_len = configuration.train, configuration.data.seq_len
    slots = (train.micro_batch_size or train.batch_size) * seq_len
    if slots > MOST_SLOTS:
        message = f"one forward pass has {slots:,} slots, more than {MOST_SLOTS:,}; lower batch_size or seq_len"
        yield spec.place_of("batch_size"), message
    step = train.batch_size * seq_len
    if train.tokens < step:
        yield (
            spec.place_of("tokens"),
            f"tokens is {train.tokens:,}; it must be at least {step:,}, which one step of batch_size "
            f"({train.batch_size:,}) x seq_len ({seq_len:,}) takes",
        )
    if configuration.benchmark_model is not None and configuration.benchmark is not None:
        yield from _model(("benchmark", "model"), configuration.benchmark_model)
        length = configuration.benchmark.context + configuration.benchmark.generate
        largest = max(configuration.benchmark.batch_sizes)
        cache = largest * kv_bytes_per_sequence(configuration.benchmark_model, length, 2)
        if cache > MOST_CACHE_BYTES:
            message = f"the benchmark's keys and values take {cache:,} bytes, more than any machine holds"
            yield ("benchmark",), f"{message} ({MOST_CACHE_BYTES:,}); lower context or batch_sizes"


def _model(place: Path, model: ModelConfig) -> Iterator[tuple[Path, str]]:
    count = parameter_count(model)
    if count > MOST_PARAMETERS:
        message = f"the model has {count:,} parameters, more than any machine holds ({MOST_PARAMETERS:,})"
        yield place, f"{message}; lower its sizes"
