"""Depo: the k-th successor in a directed cycle ("Physics of Language Models", part 4.1, Allen-Zhu 2025).

    x1 y1 x2 y2 ... xn yn   <query> k q <ans> a   <query> k q <ans> a  ...

The n edges of one cycle in random order, then four queries of the same k with their answers. n lies between the deepest
scored k + 1 and `nodes`, small cycles more often (odds proportional to 1 / sqrt n), so that no query goes round. Names
are `name_tokens` tokens each, all different, drawn anew for every sequence; k is written in two digits. Depth: k. The
published variants use names of 5 to 7 tokens of a small vocabulary (Depo1) or short ones of a large one (Depo2).
"""

import numpy as np

from workers.config import DataConfig
from workers.config.task_shapes import DEPO_COUNT_DIGITS, DEPO_QUERIES, TASKS
from workers.data.dataset import IGNORED
from workers.tasks.task import NOTHING, Examples, Tokens, distinct, lay_out


class Depo:
    """Cycles with queries; token ids: name tokens, digits, then `<query>`, `<ans>` and the filler."""

    name = "depo"
    generator = "depo/1"
    split_by_hash = True

    def __init__(self, data: DataConfig) -> None:
        self.vocab_size = TASKS[self.name].vocab_size(data)
        self._data = data
        self._letters = 2 * data.nodes
        self.zero = self._letters
        self.query, self.answer, self.filler = range(self._letters + 10, self.vocab_size)
        self._sizes = np.arange(data.scored_depths(self.name)[-1] + 1, data.nodes + 1)
        self._odds = self._sizes**-0.5 / (self._sizes**-0.5).sum()

    def examples(self, random: np.random.Generator, depths: Tokens) -> Examples:
        """One cycle for each k (B,)."""
        data, count, size = self._data, len(depths), self._data.nodes
        sizes = random.choice(self._sizes, size=count, p=self._odds)[:, None]
        places = np.arange(size)
        cycle = self._names(random, count)
        edges = np.stack([cycle, np.take_along_axis(cycle, ((places + 1) % sizes)[..., None], axis=1)], axis=2)
        edges[places >= sizes] = NOTHING
        order = np.argsort(random.random((count, size)), axis=1)
        edges = np.take_along_axis(edges, order[..., None, None], axis=1)
        asked = (random.random((count, DEPO_QUERIES)) * sizes).astype(np.int64)
        ends = (asked + depths[:, None]) % sizes
        tail = self._tail(depths, cycle[np.arange(count)[:, None], asked], cycle[np.arange(count)[:, None], ends])
        inputs, targets = lay_out(data.seq_len, self.filler, edges.reshape(count, -1), *tail)
        starts = np.cumsum(targets != IGNORED, axis=1) - 1
        answers = np.where(targets == IGNORED, NOTHING, starts // data.name_tokens)
        return Examples(inputs, targets, answers, np.repeat(depths[:, None], data.seq_len, axis=1))

    def _names(self, random: np.random.Generator, count: int) -> Tokens:
        """Different names for every node (B, N, W): the last tokens all differ."""
        names = random.integers(self._letters, size=(count, self._data.nodes, self._data.name_tokens))
        names[:, :, -1] = distinct(random, count, self._letters, self._data.nodes)
        return names

    def _tail(self, depths: Tokens, asked: Tokens, ends: Tokens) -> tuple[Tokens, Tokens]:
        """Inputs and targets of all queries (B, T) that ask from names (B, Q, W) to names (B, Q, W)."""
        width, delay = self._data.name_tokens, self._data.answer_delay
        head = 1 + DEPO_COUNT_DIGITS + width
        inputs = np.full((len(depths), DEPO_QUERIES, head + 1 + delay + width), NOTHING, dtype=np.int64)
        targets = np.full(inputs.shape, IGNORED, dtype=np.int64)
        inputs[:, :, 0] = self.query
        powers = 10 ** np.arange(DEPO_COUNT_DIGITS - 1, -1, -1)
        inputs[:, :, 1 : 1 + DEPO_COUNT_DIGITS] = self.zero + (depths[:, None] // powers % 10)[:, None]
        inputs[:, :, head - width : head] = asked
        inputs[:, :, head] = self.answer
        inputs[:, :, head + 1 + delay :] = ends
        targets[:, :, head + delay : head + delay + width] = ends
        return inputs.reshape(len(depths), -1), targets.reshape(len(depths), -1)
