"""Text from token shards, as sequences of S slots.

An epoch cuts the training split into windows of S tokens at an offset drawn anew for every epoch, and visits each
window once in an order drawn anew; a batch may end one epoch and begin the next. The evaluation set is windows of the
held-out split, evenly spaced and not overlapping; of a split with fewer windows, all are scored.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.config import DataConfig
from workers.data.dataset import TRAIN_STREAM, Batch, EvaluationSet, random_stream, rank_slice
from workers.data.errors import DataError
from workers.data.shards import Shards


class TextDataset:
    """Next-token prediction on one corpus."""

    def __init__(self, shards: Shards, data: DataConfig) -> None:
        self.vocab_size: int = shards.manifest["vocab_size"]
        self._manifest = shards.manifest
        self._train, self._val = shards.tokens("train"), shards.tokens("val")
        self._token_bytes = shards.token_bytes()
        self.seq_len = data.seq_len
        self._windows = len(self._train) // data.seq_len - 1
        self._eval_windows = min(data.eval_sequences, (len(self._val) - 1) // data.seq_len)
        for split, tokens, windows in (
            ("training", self._train, self._windows),
            ("held-out", self._val, self._eval_windows),
        ):
            if windows < 1:
                raise DataError(
                    f"seq_len is {data.seq_len} and the {split} split of {data.corpus} has {len(tokens)} tokens; "
                    "shorten seq_len or add text"
                )
        self._epoch_starts = lru_cache(maxsize=2)(self._draw_epoch)

    def train_batch(self, step: int, *, seed: int, batch_size: int, rank: int = 0, world: int = 1) -> Batch:
        """This rank's share (B / world, S) of the global batch of `step`."""
        numbers = step * batch_size + np.arange(batch_size)[rank_slice(batch_size, rank, world)]
        return self.sequences(numbers, seed=seed)

    def sequences(self, numbers: NDArray[np.int64], *, seed: int) -> Batch:
        """The training windows of these numbers, counted from 0 in the order of their visit (n, S)."""
        epoch, place = np.divmod(numbers, self._windows)
        starts = np.empty_like(numbers)
        for each in np.unique(epoch):
            chosen = epoch == each
            starts[chosen] = self._epoch_starts(seed, int(each))[place[chosen]]
        return self._cut(self._train, starts)

    def evaluation_set(self) -> EvaluationSet:
        """Evenly spaced held-out windows (E, S), with the bytes that their targets stand for."""
        room = len(self._val) - 1 - self._eval_windows * self.seq_len
        order = np.arange(self._eval_windows)
        starts = order * self.seq_len + order * room // max(1, self._eval_windows - 1)
        inputs, targets = self._cut(self._val, starts)
        return EvaluationSet(inputs, targets, target_bytes=int(self._token_bytes[targets].sum()))

    def info(self) -> Mapping[str, Any]:
        """Corpus, licence, hashes, and bytes and tokens of both splits."""
        keys = ("corpus", "corpus_fingerprint", "licence", "python", "vocab", "tokenizer_sha256", "splits")
        return {key: self._manifest[key] for key in keys} | {"eval_sequences": self._eval_windows}

    def _draw_epoch(self, seed: int, epoch: int) -> NDArray[np.int64]:
        """First tokens of an epoch's windows, in the order of their visit."""
        random = random_stream(seed, TRAIN_STREAM, epoch)
        offset = random.integers(self.seq_len)
        return offset + self.seq_len * random.permutation(self._windows)

    def _cut(self, tokens: NDArray[np.integer[Any]], starts: NDArray[np.int64]) -> Batch:
        """Windows of S tokens from these starts, and the same moved on by one token."""
        spans = tokens[starts[:, None] + np.arange(self.seq_len + 1)].astype(np.int64)
        return Batch(spans[:, :-1], spans[:, 1:])
