"""Batches made by a thread while the model trains on the ones before.

A batch is a pure function of its step, so it does not matter who makes it, when, or whether it is thrown away: training
sees the same data with and without, and after every resume.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from workers.data.dataset import Batch

AHEAD = 4
"""Batches that are kept ready."""


class Background:
    """Makes the next batches ahead of time, up to the last step; a context manager that ends its thread."""

    def __init__(self, make: Callable[[int], Batch], steps: int) -> None:
        self._make, self._steps = make, steps
        self._pending: dict[int, Future[Batch]] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def take(self, step: int) -> Batch:
        """The batch of a step; what its making raised is raised here."""
        wanted = range(step, min(step + AHEAD + 1, self._steps))
        self._pending = {each: future for each, future in self._pending.items() if each in wanted}
        for each in wanted:
            if each not in self._pending:
                self._pending[each] = self._thread.submit(self._make, each)
        return self._pending.pop(step).result()
