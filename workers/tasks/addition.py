"""n-ary addition (Saunshi et al. 2025, arXiv 2502.17416, section 3): `315+120+045+824=` and then `1304`.

Every operand is uniform in 0..10^digits - 1 and written with all its digits; the sum is written without leading zeros
and ends with the filler, so that its length has to be known too. All of the answer must be right. Depth: operands.
"""

import numpy as np

from workers.config import DataConfig
from workers.config.task_shapes import TASKS
from workers.tasks.task import NOTHING, Examples, Tokens, answer_tail, lay_out, one_answer

PLUS, EQUALS, FILLER = 10, 11, 12


class Addition:
    """Sums of n numbers."""

    name = "addition"
    generator = "addition/1"
    split_by_hash = True

    def __init__(self, data: DataConfig) -> None:
        self.vocab_size = TASKS[self.name].vocab_size(data)
        self._data = data

    def examples(self, random: np.random.Generator, depths: Tokens) -> Examples:
        """One sum for each number of operands (B,)."""
        data, most = self._data, int(depths.max())
        numbers = random.integers(10**data.digits, size=(len(depths), most))
        there = np.arange(most) < depths[:, None]
        questions = np.full((len(depths), most, data.digits + 1), PLUS, dtype=np.int64)
        questions[:, :, :-1] = _digits(numbers, data.digits)
        questions[np.arange(len(depths)), depths - 1, -1] = NOTHING
        questions[~there] = NOTHING
        sums = np.where(there, numbers, 0).sum(1)
        answers = _written(sums, len(str(most * (10**data.digits - 1))))
        tail = answer_tail(EQUALS, data.answer_delay, answers)
        return one_answer(*lay_out(data.seq_len, FILLER, questions.reshape(len(depths), -1), *tail), depths)


def _digits(numbers: Tokens, width: int) -> Tokens:
    """Decimal digits, the first one first (..., width)."""
    return numbers[..., None] // 10 ** np.arange(width - 1, -1, -1) % 10


def _written(numbers: Tokens, width: int) -> Tokens:
    """Digits without leading zeros, then the filler, then nothing (B, width + 1)."""
    digits = _digits(numbers, width)
    lengths = np.maximum(1, width - (digits != 0).argmax(1))
    lengths[numbers == 0] = 1
    places = np.arange(width + 1)
    moved = np.take_along_axis(digits, np.minimum(places + width - lengths[:, None], width - 1), axis=1)
    return np.where(places < lengths[:, None], moved, np.where(places == lengths[:, None], FILLER, NOTHING))
