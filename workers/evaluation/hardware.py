"""What this process computes on, how fast it reads memory and multiplies matrices."""

import os
import platform
import time
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from workers.decoding.memory import zeros
from workers.decoding.native import engine, read_memory

READ_BYTES = {"cpu": 2**30, "cuda": 2**31}
"""Read per pass: much more than the last cache holds."""
READ_PASSES = 5
MATRIX_SIZE = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the factors."""
MATRIX_PASSES = 5


def hardware() -> dict[str, Any]:
    """The device as plain data. Equal data means comparable timings, so it belongs into a measurement's fingerprint.

    `kind` (cpu or cuda), `device` (model name), `cores` (that this process may use), `threads` (of torch), `torch`,
    `decoding` (what takes decode steps).
    """
    cuda = torch.cuda.is_available()
    return {
        "kind": "cuda" if cuda else "cpu",
        "device": torch.cuda.get_device_name() if cuda else _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "decoding": "cuda graph" if cuda else engine(),
    }


def read_bandwidth() -> float:
    """Bytes per second at which this process's device reads a large array, best of several passes; measured once.

    On a CPU with the code that reads weights in decode steps, on a GPU (and without compiled code) with a sum.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return _measure_bandwidth(device, torch.get_num_threads())


@lru_cache(maxsize=8)
def _measure_bandwidth(device: str, threads: int) -> float:
    numbers = zeros((READ_BYTES[device] // 4,), torch.float32, torch.device(device)).fill_(1)
    read = partial(read_memory, numbers, threads) if device == "cpu" else (lambda: numbers.sum().item())
    seconds = []
    for _ in range(READ_PASSES):
        start = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - start)
    return READ_BYTES[device] / min(seconds)


def matrix_rate(dtype: torch.dtype) -> float:
    """FLOP per second of this process's device in a large matrix product of a type, best of several; measured once."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return _measure_matrix_rate(device, dtype, torch.get_num_threads())


@lru_cache(maxsize=8)
def _measure_matrix_rate(device: str, dtype: torch.dtype, threads: int) -> float:  # noqa: ARG001 (part of the key)
    size = MATRIX_SIZE[device]
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    seconds = []
    for _ in range(MATRIX_PASSES):
        start = time.perf_counter()
        (left @ right)[0, 0].item()
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
