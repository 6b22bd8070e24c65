"""The workers of a trial as each of them sees them: its rank, their number, and what they settle together.

Whatever is settled is settled by all: every worker calls the same methods in the same order.
"""

import json
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Ranks(Protocol):
    """The workers of one trial."""

    rank: int
    """This worker's, from 0."""
    count: int

    def any_of(self, *said: bool) -> tuple[bool, ...]:
        """For each place, whether any worker says so."""

    def total(self, number: int) -> int:
        """The sum of every worker's number."""

    def summed(self, value: Tensor) -> Tensor:
        """The sum of every worker's tensor; the argument is left as it is."""

    def first(self, plain: Any) -> Any:
        """What rank 0 gives, as plain data that JSON can hold; the others' arguments do not matter."""


class Alone:
    """One worker, which settles everything by itself."""

    rank, count = 0, 1

    def any_of(self, *said: bool) -> tuple[bool, ...]:
        """What it says."""
        return said

    def total(self, number: int) -> int:
        """The number."""
        return number

    def summed(self, value: Tensor) -> Tensor:
        """The tensor."""
        return value

    def first(self, plain: Any) -> Any:
        """The data."""
        return plain


ALONE = Alone()


class Joined:
    """Workers that have met in torch's default process group, which reduces CPU tensors whatever they train on."""

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()

    def any_of(self, *said: bool) -> tuple[bool, ...]:
        """One small reduction on the CPU: no GPU is waited for."""
        words = torch.tensor(said, dtype=torch.int64)
        dist.all_reduce(words, dist.ReduceOp.MAX)
        return tuple(bool(word) for word in words)

    def total(self, number: int) -> int:
        """The sum."""
        numbers = torch.tensor(number, dtype=torch.int64)
        dist.all_reduce(numbers)
        return int(numbers)

    def summed(self, value: Tensor) -> Tensor:
        """The sum, on the device of the argument."""
        value = value.clone()
        dist.all_reduce(value)
        return value

    def first(self, plain: Any) -> Any:
        """Sent as JSON: nothing is unpickled."""
        data = bytearray(json.dumps(plain).encode()) if self.rank == 0 else bytearray()
        size = torch.tensor(len(data), dtype=torch.int64)
        dist.broadcast(size, 0)
        sent = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(sent, 0)
        return json.loads(sent.numpy().tobytes())
