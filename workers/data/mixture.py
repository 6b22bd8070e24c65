"""Several texts and tasks as one data set: sequences of the parts in turn, by their weights.

Of every `sum(weights)` sequences in a row each part gives as many as its weight says, so every batch is made up in
nearly the same way. Token ids of the parts do not overlap: the text's come first, then each task's own, in the order
written. A batch is a pure function of (seed, step, rank, world), as of one part alone. Each part is scored by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.data.dataset import IGNORED, Batch, EvaluationSet, Source, rank_slice


class Mixture:
    """Sequences of S slots from several sources."""

    def __init__(self, sources: Sequence[tuple[Source, int, int]], *, name: str, vocab_size: int, seq_len: int) -> None:
        """`sources` are (source, weight, first token id)."""
        self.vocab_size, self.seq_len = vocab_size, seq_len
        self._name = name
        self._sources = sources
        weights = np.array([weight for _, weight, _ in sources])
        self._turn = np.repeat(np.arange(len(sources)), weights)
        self._place = np.concatenate([np.arange(weight) for weight in weights])

    def train_batch(self, step: int, *, seed: int, batch_size: int, rank: int = 0, world: int = 1) -> Batch:
        """This rank's share (B / world, S) of the global batch of `step`."""
        numbers = step * batch_size + np.arange(batch_size)[rank_slice(batch_size, rank, world)]
        round_, at = np.divmod(numbers, len(self._turn))
        batch = Batch(*(np.empty((len(numbers), self.seq_len), dtype=np.int64) for _ in range(2)))
        for index, (source, weight, first_id) in enumerate(self._sources):
            rows = np.flatnonzero(self._turn[at] == index)
            if len(rows):
                own = source.sequences(round_[rows] * weight + self._place[at[rows]], seed=seed)
                batch.inputs[rows], batch.targets[rows] = _moved(own, first_id)
        return batch

    def evaluation_set(self) -> EvaluationSet:
        """The held-out sequences of all parts, with the parts themselves."""
        parts = tuple(_moved_set(source.evaluation_set(), first_id) for source, _, first_id in self._sources)
        return EvaluationSet(
            np.concatenate([part.inputs for part in parts]),
            np.concatenate([part.targets for part in parts]),
            parts=parts,
        )

    def info(self) -> Mapping[str, Any]:
        """The mixture and what is known of each part."""
        return {"corpus": self._name, "parts": [dict(source.info()) for source, _, _ in self._sources]}


def _moved(batch: Batch, first_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return batch.inputs + first_id, np.where(batch.targets == IGNORED, IGNORED, batch.targets + first_id)


def _moved_set(data: EvaluationSet, first_id: int) -> EvaluationSet:
    inputs, targets = _moved(Batch(data.inputs, data.targets), first_id)
    return replace(data, inputs=inputs, targets=targets)
