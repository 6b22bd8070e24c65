"""State tracking: the running product of a sequence of group elements (the word problem of Z_m, S_n and A_n).

Tokens are elements; the label of slot i is g_1 g_2 ... g_i. Permutations act from the right: in g h, g is applied
first. Z2 is parity; the word problems of A5 and S5 are complete for NC1 (Barrington 1989), so no transformer of fixed
depth solves every length. With `answer_delay` D, D fillers follow every element. Depth: elements multiplied. A label is
counted under the smallest scored depth that is not below its own.
"""

from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from workers.config import DataConfig
from workers.config.task_shapes import TASKS, group_order
from workers.data.dataset import IGNORED
from workers.tasks.task import NOTHING, Examples, Tokens


class Tracking:
    """Sequences of group elements; the filler is the id after the last element."""

    name = "tracking"
    generator = "tracking/1"
    split_by_hash = True

    def __init__(self, data: DataConfig) -> None:
        self.vocab_size = TASKS[self.name].vocab_size(data)
        self._data = data
        self._table = multiplication_table(data.group)
        self._marks = np.array(data.scored_depths(self.name))

    def examples(self, random: np.random.Generator, depths: Tokens) -> Examples:
        """One sequence for each number of elements (B,)."""
        data, count, most = self._data, len(depths), int(depths.max())
        elements = random.integers(len(self._table), size=(count, most))
        products = np.empty_like(elements)
        products[:, 0] = elements[:, 0]
        for place in range(1, most):
            products[:, place] = self._table[products[:, place - 1], elements[:, place]]
        there = np.arange(most) < depths[:, None]
        stride = data.answer_delay + 1
        inputs = np.full((count, data.seq_len), self.vocab_size - 1, dtype=np.int64)
        targets = np.full((count, data.seq_len), IGNORED, dtype=np.int64)
        own = np.full((count, data.seq_len), NOTHING, dtype=np.int64)
        inputs[:, : most * stride : stride] = np.where(there, elements, self.vocab_size - 1)
        targets[:, stride - 1 : most * stride : stride] = np.where(there, products, IGNORED)
        marks = np.searchsorted(self._marks, np.arange(1, most + 1))
        own[:, stride - 1 : most * stride : stride] = self._marks[np.minimum(marks, len(self._marks) - 1)]
        return Examples(inputs, targets, np.where(targets == IGNORED, NOTHING, np.arange(data.seq_len)), own)


@lru_cache(maxsize=8)
def multiplication_table(group: str) -> NDArray[np.int64]:
    """Index of the product g h at row g, column h. Elements of Z_m are residues, of S_n and A_n permutations in
    lexicographic order."""
    order = group_order(group)
    if group[0] == "z":
        return np.add.outer(np.arange(order), np.arange(order)) % order
    degree = int(group[1:])
    elements = np.array([each for each in permutations(range(degree)) if group[0] == "s" or _is_even(each)])
    products = elements[:, elements].swapaxes(0, 1)  # (gh)(x) = h(g(x))
    base = degree ** np.arange(degree)
    index = {code: place for place, code in enumerate((elements @ base).tolist())}
    codes = (products @ base).tolist()
    return np.array([[index[code] for code in row] for row in codes])


def _is_even(permutation: tuple[int, ...]) -> bool:
    swaps = sum(a > b for place, a in enumerate(permutation) for b in permutation[place + 1 :])
    return swaps % 2 == 0
