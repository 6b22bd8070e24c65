"""Carries out one request on this machine's device: the worker's side of `workers.protocol`.

A trial (`workers.trial`) shares the device with other trials and lets a waiting benchmark go first between two steps. A
benchmark has the device to itself. Nothing is raised across the border but `GeneratorExit` and `KeyboardInterrupt`:
everything else becomes a `Failure`. A trial that is asked to stop ends the stream without an outcome, one that is asked
to leave with a saved state; a benchmark, which is short, runs to its end.
"""

import gc
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch
from torch.distributed import DistError

from workers.data import DataError
from workers.device import device_name
from workers.device_lock import DeviceLock
from workers.evaluation.decode_benchmark import measure
from workers.evaluation.hardware import hardware
from workers.known import Known
from workers.parallel.meeting import MeetingError
from workers.protocol import (
    BenchmarkRequest,
    Failure,
    FailureReason,
    MetricReport,
    Request,
    ShouldStop,
    TrialOutcome,
    never_stop,
)
from workers.training import DivergenceError
from workers.trial import Preempted, Stopped, refuse_non_finite, train

Clock = Callable[[], float]


def execute(
    request: Request, should_stop: ShouldStop = never_stop, *, clock: Clock = time.perf_counter
) -> Iterator[MetricReport | TrialOutcome]:
    """Reports, then exactly one outcome. `clock` gives every time that is reported, in seconds."""
    started, known, stopped = clock(), Known(), False
    failure: Failure | None = None
    try:
        with _cpu_threads(_threads(request)):
            known.info |= {"hardware": hardware(), "versions": _versions()}
            if isinstance(request, BenchmarkRequest):
                _benchmark(request, known, clock)
            else:
                yield from train(request, known, should_stop, clock, started)
    except Stopped:
        stopped = True
    except Preempted as leaving:
        failure = Failure(reason=FailureReason.PREEMPTED, message=str(leaving))
    except Exception as error:
        failure = describe_failure(error)
    finally:
        _free_memory()
    if not stopped:
        yield TrialOutcome(
            metrics=known.metrics, info=known.info, failure=failure, seconds=clock() - started, loops=known.loops
        )


_BROKEN_DEVICE = (
    "uncorrectable ECC error",
    "uncorrectable NVLink error",
    "hardware stack error",
    "device(s) is/are busy or unavailable",
    "no CUDA-capable device is detected",
    "system not yet initialized",
    "GPU is lost",
    "fallen off the bus",
)
"""What CUDA says (the texts of `cudaGetErrorString`, and the driver's) when no program could run there."""


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
    if any(words in str(error) for words in _BROKEN_DEVICE):
        return FailureReason.DEVICE
    if isinstance(error, MeetingError | DistError) or "gloo/transport" in str(error):  # how gloo says it
        return FailureReason.PEER_LOST
    return FailureReason.EXCEPTION


def _benchmark(request: BenchmarkRequest, known: Known, clock: Clock) -> None:
    """Measure with the device held exclusively."""
    with DeviceLock(device_name()).exclusive():
        metrics, info = measure(request.model, request.benchmark, request.seed, clock=clock)
    known.metrics |= metrics
    known.info |= info
    refuse_non_finite(known.metrics)


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


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}


@cache
def _spare_what_stays() -> None:
    """What imports have made by the end of the first attempt is not looked through again: half a second each time."""
    gc.freeze()


def _free_memory() -> None:
    """Leave nothing of an attempt in a process that stays warm."""
    gc.collect()
    _spare_what_stays()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
