"""p-hop induction (Saunshi et al. 2025, arXiv 2502.17416, section 3 and Sanford et al. 2024, arXiv 2402.09268).

One hop from slot i looks for the same symbol: j = the largest index below i with x_j = x_i, and goes to j + 1. The
answer to a query at slot i is the symbol where p hops from i end.

- `labels: dense`: symbols are drawn independently, and every slot from which p hops exist has its answer as label.
  Accuracy counts the second half of the slots.
- `labels: last`: only the last symbol is a query, and p hops from it are sure to exist: a chain of p + 1 symbols
  without consecutive repeats is drawn, its (symbol, successor) pairs are placed from right to left with random gaps,
  and every gap is filled with symbols other than the one being searched through it.

With `answer_delay` D > 0, D filler tokens (id = alphabet) stand between a query and its answer: after the last symbol,
or, when labels are dense, after every symbol.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.config import DataConfig
from workers.data.dataset import (
    EVALUATION_STREAM,
    IGNORED,
    TRAIN_STREAM,
    Batch,
    EvaluationSet,
    random_stream,
    rank_slice,
)
from workers.data.errors import DataError

GENERATOR = "phop/1"
"""Changes whenever the same settings and seed would give other sequences."""

Symbols = NDArray[np.int64]


def hop_targets(symbols: Symbols, hops: int, alphabet: int) -> Symbols:
    """The p-hop answer of every slot (B, n), `IGNORED` where a hop finds no earlier equal symbol."""
    slots = np.arange(symbols.shape[1])
    following = np.full_like(symbols, -1)
    for symbol in range(alphabet):
        here = symbols == symbol
        last = np.maximum.accumulate(np.where(here, slots, -2), axis=1)
        earlier = np.concatenate([np.full_like(last[:, :1], -2), last[:, :-1]], axis=1)
        np.copyto(following, np.where(earlier >= 0, earlier + 1, -1), where=here)
    place = np.broadcast_to(slots, symbols.shape)
    for _ in range(hops):
        place = np.where(place >= 0, np.take_along_axis(following, np.maximum(place, 0), axis=1), -1)
    return np.where(place >= 0, np.take_along_axis(symbols, np.maximum(place, 0), axis=1), IGNORED)


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


class PhopDataset:
    """Sequences of S slots made from (seed, step); about a microsecond per slot."""

    def __init__(self, data: DataConfig) -> None:
        self.vocab_size = data.vocab_size
        self.seq_len = data.seq_len
        self._data = data
        self._symbols = data.task_symbols

    def train_batch(self, step: int, *, seed: int, batch_size: int, rank: int = 0, world: int = 1) -> Batch:
        """This rank's share (B / world, S) of the global batch of `step`."""
        share = rank_slice(batch_size, rank, world)
        inputs, targets = self._generate(random_stream(seed, TRAIN_STREAM, step), batch_size)
        return Batch(inputs[share], targets[share])

    def evaluation_set(self) -> EvaluationSet:
        """Sequences (E, S) from a stream that no training seed reaches; the same for every seed."""
        batch = self._generate(random_stream(0, EVALUATION_STREAM, 0), self._data.eval_sequences)
        if (batch.targets[:, self.seq_len // 2 :] == IGNORED).all():
            raise DataError(
                f"hops is {self._data.hops} and no slot of {self._data.eval_sequences} sequences has an answer; "
                "use fewer hops, a longer seq_len or labels: last"
            )
        return EvaluationSet(batch.inputs, batch.targets, task="phop")

    def info(self) -> Mapping[str, Any]:
        """The generator and its settings."""
        settings = ("hops", "alphabet", "labels", "answer_delay", "eval_sequences")
        return {"corpus": "phop", "generator": GENERATOR} | {name: getattr(self._data, name) for name in settings}

    def _generate(self, random: np.random.Generator, count: int) -> Batch:
        data, length = self._data, self._symbols
        inputs = np.full((count, data.seq_len), data.alphabet, dtype=np.int64)
        targets = np.full((count, data.seq_len), IGNORED, dtype=np.int64)
        if data.labels == "dense":
            symbols = random.integers(data.alphabet, size=(count, length))
            stride = data.answer_delay + 1
            inputs[:, : length * stride : stride] = symbols
            targets[:, stride - 1 : length * stride : stride] = hop_targets(symbols, data.hops, data.alphabet)
        else:
            symbols = guaranteed_chain(random, count, length, data.hops, data.alphabet)
            inputs[:, :length] = symbols
            targets[:, -1] = hop_targets(symbols, data.hops, data.alphabet)[:, -1]
        return Batch(inputs, targets)
