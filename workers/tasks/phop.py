"""p-hop induction (Saunshi et al. 2025, arXiv 2502.17416, section 3 and Sanford et al. 2024, arXiv 2402.09268).

One hop from slot i looks for the same symbol: j = the largest index below i with x_j = x_i, and goes to j + 1. The
answer to a query at slot i is the symbol where p hops from i end.

- `labels: dense`: symbols are drawn independently, and every slot from which p hops exist has its answer as label.
  Accuracy counts the second half of the slots.
- `labels: last`: only the last symbol is a query, and p hops from it are sure to exist: a chain of p + 1 symbols
  without consecutive repeats is drawn, its (symbol, successor) pairs are placed from right to left with random gaps,
  and every gap is filled with symbols other than the one being searched through it.

With `answer_delay` D > 0, D filler tokens (id = alphabet) stand between a query and its answer: after the last symbol,
or, when labels are dense, after every symbol. With several values of p, a sequence begins with as many slots as the
largest p, and the last p of them hold the count token (id = alphabet + 1).
"""

import numpy as np
from numpy.typing import NDArray

from workers.config import DataConfig
from workers.config.task_shapes import TASKS
from workers.data.dataset import IGNORED
from workers.tasks.task import NOTHING, Examples, Tokens

GENERATOR = "phop/1"
"""Changes whenever the same settings and seed would give other sequences."""

Symbols = NDArray[np.int64]


def hop_targets(symbols: Symbols, hops: int, alphabet: int) -> Symbols:
    """The p-hop answer of every slot (B, n), `IGNORED` where a hop finds no earlier equal symbol.

    A stable sort by symbol puts every slot right after the last earlier one with the same symbol. Slots of all rows are
    numbered through, each row ended by a place that stands for nowhere and leads to itself.
    """
    count, length = symbols.shape
    narrow = symbols.astype(np.min_scalar_type(alphabet - 1))  # radix sort, for small types
    order = np.argsort(narrow, axis=1, kind="stable")
    ranked = np.take_along_axis(narrow, order, axis=1)
    first = np.arange(count)[:, None] * (length + 1)
    nowhere = first + length
    order += first
    following = np.repeat(nowhere, length + 1)
    following[order[:, 1:]] = np.where(ranked[:, 1:] == ranked[:, :-1], order[:, :-1] + 1, nowhere)
    place = first + np.arange(length)
    for _ in range(hops):
        place = following[place]
    ends = np.full((count, length + 1), IGNORED, dtype=np.int64)
    ends[:, :-1] = symbols
    targets: Symbols = ends.ravel()[place]
    return targets


def guaranteed_chain(random: np.random.Generator, count: int, length: int, hops: int, alphabet: int) -> Symbols:
    """Sequences (B, n) in which p hops from the last slot exist; needs 2 p + 1 <= n."""
    steps = random.integers(1, alphabet, size=(count, hops))
    first = random.integers(alphabet, size=(count, 1))
    chain = np.cumsum(np.concatenate([first, steps], axis=1), axis=1) % alphabet
    free = length - 2 * hops - 1
    bars = np.sort(np.argpartition(random.random((count, free + hops)), hops - 1, axis=1)[:, :hops], axis=1)
    gaps = np.diff(bars, axis=1, prepend=-1) - 1
    found = length - 1 - np.cumsum(gaps + 2, axis=1)
    segment = np.zeros((count, length + 1), dtype=np.int64)
    np.put_along_axis(segment, found, 1, axis=1)
    searches_done = np.cumsum(segment[:, ::-1], axis=1)[:, ::-1][:, 1:]
    symbols = _fill(random, chain, searches_done, alphabet)
    np.put_along_axis(symbols, found, chain[:, :-1], axis=1)
    np.put_along_axis(symbols, found + 1, chain[:, 1:], axis=1)
    symbols[:, -1] = chain[:, 0]
    return symbols


def _fill(random: np.random.Generator, chain: Symbols, searches_done: Symbols, alphabet: int) -> Symbols:
    """Random symbols (B, n) that avoid, at each slot, the one being searched there; any symbol left of the chain."""
    hops = chain.shape[1] - 1
    sought = np.take_along_axis(chain, np.minimum(searches_done, hops - 1), axis=1)
    others = (sought + random.integers(1, alphabet, size=sought.shape)) % alphabet
    return np.where(searches_done == hops, random.integers(alphabet, size=sought.shape), others)


class Phop:
    """The task with its settings; where p differs between sequences, each begins with p, written in count tokens."""

    name = "phop"
    generator = GENERATOR
    split_by_hash = False

    def __init__(self, data: DataConfig) -> None:
        self.vocab_size = TASKS[self.name].vocab_size(data)
        self._data = data
        self._prefix = data.scored_depths(self.name)[-1] if data.counts_hops else 0

    def examples(self, random: np.random.Generator, depths: Tokens) -> Examples:
        """One sequence for each number of hops (B,)."""
        data, count = self._data, len(depths)
        inputs = np.full((count, data.seq_len), data.alphabet, dtype=np.int64)
        targets = np.full((count, data.seq_len), IGNORED, dtype=np.int64)
        if self._prefix:
            places = np.arange(self._prefix)
            inputs[:, : self._prefix][places >= self._prefix - depths[:, None]] = data.alphabet + 1
        for hops in np.unique(depths).tolist():
            rows = depths == hops
            own_inputs, own_targets = self._symbols(random, int(rows.sum()), hops)
            inputs[rows, self._prefix :] = own_inputs
            targets[rows, self._prefix :] = own_targets
        answers = np.where(targets == IGNORED, NOTHING, np.arange(data.seq_len))
        answers[:, : data.seq_len // 2] = NOTHING
        return Examples(inputs, targets, answers, np.repeat(depths[:, None], data.seq_len, axis=1))

    def _symbols(self, random: np.random.Generator, count: int, hops: int) -> tuple[Symbols, Symbols]:
        """Inputs and targets after the count of hops."""
        data, length, room = self._data, self._data.task_symbols, self._data.seq_len - self._prefix
        inputs = np.full((count, room), data.alphabet, dtype=np.int64)
        targets = np.full((count, room), IGNORED, dtype=np.int64)
        if data.labels == "dense":
            symbols = random.integers(data.alphabet, size=(count, length))
            stride = data.answer_delay + 1
            inputs[:, : length * stride : stride] = symbols
            targets[:, stride - 1 : length * stride : stride] = hop_targets(symbols, hops, data.alphabet)
        else:
            symbols = guaranteed_chain(random, count, length, hops, data.alphabet)
            inputs[:, :length] = symbols
            targets[:, -1] = hop_targets(symbols, hops, data.alphabet)[:, -1]
        return inputs, targets
