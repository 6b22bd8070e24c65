"""Variable assignment of depth k (the reasoning primitives of Saunshi et al. 2025, arXiv 2502.17416): `a=1, b=a, b=?`.

A program of N assignments in an order in which every variable is defined before it is used. The asked variable is k
copies away from its value; the other variables hold values or copies of any earlier one. Names are drawn anew for every
program. Chance is one in ten. Depth: copies.
"""

import numpy as np
from numpy.typing import NDArray

from workers.config import DataConfig
from workers.config.task_shapes import TASKS, VALUES
from workers.tasks.task import Examples, Tokens, answer_tail, distinct, lay_out, one_answer


class Variables:
    """Programs of N assignments; token ids: values, names, then `=`, `,`, `?` and the filler."""

    name = "variables"
    generator = "variables/1"
    split_by_hash = True

    def __init__(self, data: DataConfig) -> None:
        self.vocab_size = TASKS[self.name].vocab_size(data)
        self._data = data
        self.equals, self.comma, self.query, self.filler = range(VALUES + data.assignments, self.vocab_size)

    def examples(self, random: np.random.Generator, depths: Tokens) -> Examples:
        """One program for each number of copies (B,)."""
        data, count, size = self._data, len(depths), self._data.assignments
        rows, places = np.arange(count), np.arange(size)
        rank = np.argsort(np.argsort(random.random((count, size)), axis=1), axis=1)
        in_chain = rank <= depths[:, None]  # depth + 1 places, as good as any others
        before = _previous(in_chain)
        sources = (random.random((count, size)) * np.maximum(places, 1)).astype(np.int64)
        is_value = random.random((count, size)) < 0.5
        sources, is_value = np.where(in_chain, before, sources), np.where(in_chain, before < 0, is_value)
        is_value[:, 0] = True
        values = random.integers(VALUES, size=(count, size))
        held = values.copy()
        for place in range(1, size):
            copied = held[rows, np.maximum(sources[:, place], 0)]
            held[:, place] = np.where(is_value[:, place], held[:, place], copied)
        names = VALUES + distinct(random, count, size, size)
        asked = size - 1 - in_chain[:, ::-1].argmax(1)
        questions = np.empty((count, 4 * size + 2), dtype=np.int64)
        questions[:, 0 : 4 * size : 4] = names
        questions[:, 1 : 4 * size : 4] = self.equals
        copied_names = np.take_along_axis(names, np.maximum(sources, 0), axis=1)
        questions[:, 2 : 4 * size : 4] = np.where(is_value, values, copied_names)
        questions[:, 3 : 4 * size : 4] = self.comma
        questions[:, -2], questions[:, -1] = names[rows, asked], self.equals
        tail = answer_tail(self.query, data.answer_delay, held[rows, asked][:, None])
        return one_answer(*lay_out(data.seq_len, self.filler, questions, *tail), depths)


def _previous(chosen: NDArray[np.bool_]) -> Tokens:
    """The last chosen place before every place, or -1 (B, N)."""
    last = np.maximum.accumulate(np.where(chosen, np.arange(chosen.shape[1]), -1), axis=1)
    return np.concatenate([np.full_like(last[:, :1], -1), last[:, :-1]], axis=1)
