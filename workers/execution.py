"""Carries out one request on this machine's device: the worker's side of `workers.protocol`.

A trial prepares its data, builds the model from the seed, trains it, evaluates it and saves it; it shares the device
with other trials and lets a waiting benchmark go first between two steps. A benchmark has the device to itself. Nothing
is raised across the border but a request to stop (`GeneratorExit`, `KeyboardInterrupt`): everything else becomes a
`Failure`.
"""

import gc
import math
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workers.config import ModelConfig
from workers.config.counts import flops_per_token, parameter_count
from workers.data import DataError, Dataset, prepare
from workers.device_lock import DeviceLock
from workers.evaluation.decode_benchmark import measure
from workers.evaluation.hardware import hardware
from workers.models import LoopedTransformer, save_pretrained
from workers.protocol import (
    BenchmarkRequest,
    Failure,
    FailureReason,
    MetricReport,
    Request,
    TrialOutcome,
    TrialRequest,
)
from workers.training import DivergenceError, Trainer, choose_plan

Clock = Callable[[], float]


@dataclass
class _Known:
    """What an attempt has found out so far; survives its failure."""

    metrics: dict[str, float] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)


def execute(request: Request, *, clock: Clock = time.perf_counter) -> Iterator[MetricReport | TrialOutcome]:
    """Reports, then exactly one outcome. `clock` gives every time that is reported, in seconds."""
    started, known = clock(), _Known()
    failure: Failure | None = None
    try:
        with _cpu_threads(_threads(request)):
            known.info |= {"hardware": hardware(), "versions": _versions()}
            if isinstance(request, BenchmarkRequest):
                _benchmark(request, known, clock)
            else:
                yield from _train(request, known, clock, started)
    except Exception as error:
        failure = describe_failure(error)
    finally:
        _free_memory()
    yield TrialOutcome(metrics=known.metrics, info=known.info, failure=failure, seconds=clock() - started)


def describe_failure(error: Exception) -> Failure:
    """The failure that an exception stands for: its kind, its last line, its traceback."""
    lines = traceback.format_exception(error)
    return Failure(reason=_reason(error), message=lines[-1].strip().splitlines()[0], traceback="".join(lines))


def _reason(error: Exception) -> FailureReason:
    if isinstance(error, DivergenceError):
        return FailureReason.DIVERGED
    if isinstance(error, DataError):
        return FailureReason.INVALID
    if isinstance(error, torch.OutOfMemoryError):
        return FailureReason.GPU_OOM
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):  # how torch says it on the CPU
        return FailureReason.HOST_OOM
    return FailureReason.EXCEPTION


def _benchmark(request: BenchmarkRequest, known: _Known, clock: Clock) -> None:
    """Measure with the device held exclusively."""
    with DeviceLock(_device_name()).exclusive():
        metrics, info = measure(request.model, request.benchmark, request.seed, clock=clock)
    known.metrics |= metrics
    known.info |= info
    _refuse_non_finite(known.metrics)


def _train(request: TrialRequest, known: _Known, clock: Clock, started: float) -> Iterator[MetricReport]:
    """Train, evaluate and save with the device shared."""
    with DeviceLock(_device_name()).shared() as lock:
        dataset = prepare(request.data, Path(request.data_folder))
        _refuse_misfit(request.model, dataset)
        model = LoopedTransformer(request.model, seed=request.seed, device=_device())
        known.metrics["model/parameters"] = parameter_count(request.model)
        plan = choose_plan(model, dataset, request.train, seed=request.seed, clock=clock)
        known.info |= {"data": dict(dataset.info()), "plan": plan.to_dict()}
        trainer = Trainer(
            model,
            dataset,
            request.train,
            seed=request.seed,
            plan=plan,
            before_step=lock.yield_to_exclusive,
            clock=clock,
            started=started,
        )
        for report in trainer.run():
            known.metrics |= {**report.metrics, **_spent(request, trainer)}
            yield report
            _refuse_non_finite(report.metrics, report.step)
        save_pretrained(model, Path(request.checkpoint_folder))


def _spent(request: TrialRequest, trainer: Trainer) -> dict[str, float]:
    """What training has cost so far."""
    tokens = trainer.tokens_done
    flops = flops_per_token(request.model, request.data.seq_len) * tokens
    return {"train/tokens": tokens, "train/flops": flops, "train/seconds": trainer.training_seconds}


def _refuse_misfit(model: ModelConfig, dataset: Dataset) -> None:
    if model.vocab_size != dataset.vocab_size:
        raise DataError(
            f"vocab_size is {model.vocab_size} and the data has {dataset.vocab_size} token ids; make them equal"
        )
    if model.max_position_embeddings < dataset.seq_len:
        raise DataError(
            f"seq_len is {dataset.seq_len} and max_position_embeddings is {model.max_position_embeddings}; "
            "raise max_position_embeddings"
        )


def _refuse_non_finite(metrics: Mapping[str, float], step: int | None = None) -> None:
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise DivergenceError(name, value, step)


def _threads(request: Request) -> int | None:
    """A benchmark uses every core unless told otherwise; a trial leaves the process as it is."""
    if request.threads is None and isinstance(request, BenchmarkRequest):
        return os.process_cpu_count() if hasattr(os, "process_cpu_count") else len(os.sched_getaffinity(0))
    return request.threads


@contextmanager
def _cpu_threads(threads: int | None) -> Iterator[None]:
    """Compute with so many CPU threads, then as before; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _device_name() -> str:
    """What the lock calls the device: one name per physical device of a node, whichever of them a process can see."""
    if torch.cuda.is_available():
        return f"cuda-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
    return "cpu"


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}


def _free_memory() -> None:
    """Leave nothing of an attempt in a process that stays warm."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
