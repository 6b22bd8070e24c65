"""Memory that is read in order, many times: in huge pages where the system has them.

A processor that streams weights at full speed from 4 KiB pages spends a good part of its time on page tables. PyTorch's
own memory has such pages unless an environment variable says otherwise before it starts.
"""

import mmap
from math import prod

import torch
from torch import Tensor

HUGE_PAGE = 2**21


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros of `shape`; on a CPU in memory of their own, in huge pages where that is possible and pays."""
    count = prod(shape)
    if device.type != "cpu" or count * dtype.itemsize < HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(shape, dtype=dtype, device=device)
    try:
        memory = mmap.mmap(-1, count * dtype.itemsize + HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
    except (OSError, OverflowError):  # no huge pages, or too little memory, which PyTorch says as callers know it
        return torch.zeros(shape, dtype=dtype, device=device)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    start = -whole.data_ptr() % HUGE_PAGE
    return whole[start : start + count * dtype.itemsize].view(dtype).view(shape)


class Arena:
    """One piece of such memory for tensors of one type, placed one after the other."""

    def __init__(self, numbers: int, dtype: torch.dtype) -> None:
        self._free = zeros((numbers,), dtype, torch.device("cpu"))

    def place(self, tensor: Tensor) -> Tensor:
        """A copy of `tensor` in the arena."""
        placed, self._free = self._free[: tensor.numel()], self._free[tensor.numel() :]
        return placed.view(tensor.shape).copy_(tensor)
