"""Batches made ahead are the ones that would be made when asked for, in any order, and nothing stays behind."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from workers.config import DataConfig
from workers.data import Batch, DataError, prepare
from workers.data.background import AHEAD, Background


def numbered(asked: list[int]) -> Callable[[int], Batch]:
    def make(step: int) -> Batch:
        asked.append(step)
        return Batch(np.array([[step]]), np.array([[threading.get_ident()]]))

    return make


def test_batches_come_by_step_and_are_made_by_another_thread() -> None:
    asked: list[int] = []
    with Background(numbered(asked), 20) as batches:
        for step in (0, 1, 2, 9, 10, 3, 19):  # as after a resume, in any order
            inputs, thread = batches.take(step)
            assert inputs[0, 0] == step
            assert thread[0, 0] != threading.get_ident()
    assert max(asked) == 19  # none beyond the last step


def test_the_next_batches_are_made_while_this_one_is_used() -> None:
    asked: list[int] = []
    made = threading.Semaphore(0)

    def make(step: int) -> Batch:
        batch = numbered(asked)(step)
        made.release()
        return batch

    with Background(make, 100) as batches:
        batches.take(0)
        for _ in range(AHEAD + 1):
            assert made.acquire(timeout=30)
        assert asked == list(range(AHEAD + 1))


def test_the_thread_ends_with_the_context_and_its_errors_come_out() -> None:
    before = threading.active_count()

    def fail(step: int) -> Batch:
        raise DataError(f"step {step} cannot be made")

    def use() -> None:
        with Background(fail, 10) as batches:
            batches.take(4)

    with pytest.raises(DataError, match="step 4 cannot be made"):
        use()
    assert threading.active_count() == before


@pytest.mark.parametrize("corpus", ["phop", "addition + tracking"])
def test_ahead_of_time_and_in_time_are_the_same(corpus: str) -> None:
    data = DataConfig(corpus=corpus, seq_len=136)

    def make(step: int) -> Batch:
        return prepare(data, Path("unused")).train_batch(step, seed=3, batch_size=10)

    with Background(make, 40) as batches:
        for step in (0, 1, 2, 31, 32):
            assert np.array_equal(batches.take(step).inputs, make(step).inputs)
