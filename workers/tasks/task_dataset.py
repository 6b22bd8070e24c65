"""Batches and an evaluation set from any task, with no sequence in both.

Training sequences are drawn in blocks, from (seed, block) alone, each sequence of a depth drawn anew; a batch is cut
from one or several. One eighth of all sequences, chosen by the hash of their tokens, is held out: a training sequence
of that kind is drawn again, and so is an evaluation sequence of the other kind. A task that is not split by hash
(`phop`) draws a block per step, and training sequences again only when they are in the evaluation set.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.config import DataConfig
from workers.config.task_shapes import TASKS
from workers.data.dataset import (
    EVALUATION_STREAM,
    TRAIN_STREAM,
    Batch,
    EvaluationSet,
    random_stream,
    rank_slice,
)
from workers.data.errors import DataError
from workers.tasks.task import NOTHING, Examples, Task, Tokens

HELD_OUT_ONE_IN = 8
BLOCK = 256
"""Sequences drawn at once: in small batches most of the time would go to starting numpy's operations."""
_MOST_DRAWS = 2_000
"""Draws of one batch after which a task counts as too small to be split."""


class TaskDataset:
    """Sequences of S slots made from (seed, step)."""

    def __init__(self, task: Task, data: DataConfig) -> None:
        self.vocab_size = task.vocab_size
        self.seq_len = data.seq_len
        self._task, self._data = task, data
        self._trained = np.array(data.trained_depths(task.name))
        self._scored = np.array(data.scored_depths(task.name))
        self._weights = _hash_weights(data.seq_len)
        self._block = lru_cache(maxsize=4)(self._draw_block)
        self._evaluated: NDArray[np.uint64] | None = None

    def train_batch(self, step: int, *, seed: int, batch_size: int, rank: int = 0, world: int = 1) -> Batch:
        """This rank's share (B / world, S) of the global batch of `step`."""
        numbers = step * batch_size + np.arange(batch_size)[rank_slice(batch_size, rank, world)]
        return self._cut(numbers, seed, BLOCK if self._task.split_by_hash else batch_size)

    def sequences(self, numbers: NDArray[np.int64], *, seed: int) -> Batch:
        """The training sequences of these ascending numbers, counted from 0 (n, S)."""
        return self._cut(numbers, seed, BLOCK)

    def evaluation_set(self) -> EvaluationSet:
        """Sequences (E, S) from a stream that no training seed reaches, as many of each depth; equal for all seeds."""
        depths = self._scored[np.arange(self._data.eval_sequences) % len(self._scored)]
        examples = self._draw(random_stream(0, EVALUATION_STREAM, 0), depths, held_out=True)
        self._refuse_unanswered(examples)
        return EvaluationSet(
            examples.inputs,
            examples.targets,
            task=self._task.name,
            answers=examples.answers,
            depths=examples.depths,
            deepest_trained=int(self._trained[-1]),
            whole_sequences=TASKS[self._task.name].whole_sequences,
        )

    def info(self) -> Mapping[str, Any]:
        """The generator and its settings."""
        shape, data = TASKS[self._task.name], self._data
        settings = (shape.depth, *shape.knobs, "answer_delay", "eval_sequences")
        further = {} if data.extrapolate == 1 else {"extrapolate": data.extrapolate}
        named = {"corpus": self._task.name, "generator": self._task.generator}
        return named | {name: getattr(data, name) for name in settings} | further

    def _refuse_unanswered(self, examples: Examples) -> None:
        """Every scored depth must have an answer, or its accuracy would not exist."""
        answered = np.unique(examples.depths[examples.answers != NOTHING])
        missing = [depth for depth in self._scored.tolist() if depth not in answered]
        if missing:
            knob = TASKS[self._task.name].depth
            raise DataError(
                f"{knob} is {missing[0]} and no slot of {len(examples.inputs)} sequences has an answer; "
                f"use fewer {knob}, a longer seq_len or labels: last"
            )

    def _cut(self, numbers: NDArray[np.int64], seed: int, size: int) -> Batch:
        """Sequences by number, from blocks of this size."""
        index, place = np.divmod(numbers, size)
        blocks = {each: self._block(seed, each, size) for each in np.unique(index).tolist()}
        pieces = [(block, place[index == each]) for each, block in blocks.items()]
        return Batch(
            np.concatenate([block.inputs[rows] for block, rows in pieces]),
            np.concatenate([block.targets[rows] for block, rows in pieces]),
        )

    def _draw_block(self, seed: int, index: int, size: int) -> Examples:
        random = random_stream(seed, TRAIN_STREAM, index)
        single = len(self._trained) == 1
        depths = np.repeat(self._trained, size) if single else random.choice(self._trained, size)
        return self._draw(random, depths, held_out=False)

    def _draw(self, random: np.random.Generator, depths: Tokens, *, held_out: bool) -> Examples:
        """Examples of these depths, all on the same side of the split."""
        examples = self._task.examples(random, depths)
        for _ in range(_MOST_DRAWS):
            wrong = np.flatnonzero(self._is_held_out(examples, evaluating=held_out) != held_out)
            if not len(wrong):
                return examples
            for old, new in zip(examples, self._task.examples(random, depths[wrong]), strict=True):
                old[wrong] = new
        raise DataError(
            f"{self._task.name} with these settings has too few different sequences to hold some out from training; "
            "make them longer, or deeper"
        )

    def _is_held_out(self, examples: Examples, *, evaluating: bool) -> NDArray[np.bool_]:
        hashes = _mixed((examples.inputs.astype(np.uint64) + np.uint64(1)) @ self._weights)
        if self._task.split_by_hash:
            chosen: NDArray[np.bool_] = hashes % np.uint64(HELD_OUT_ONE_IN) == 0
            return chosen
        if evaluating:
            return np.ones(len(hashes), dtype=np.bool_)
        if self._evaluated is None:
            evaluated = self.evaluation_set().inputs.astype(np.uint64)
            self._evaluated = np.unique(_mixed((evaluated + np.uint64(1)) @ self._weights))
        return np.isin(hashes, self._evaluated)


def _hash_weights(length: int) -> NDArray[np.uint64]:
    """Fixed odd 64-bit numbers, one per slot (S,)."""
    return np.random.Generator(np.random.Philox(key=[2024, 0])).integers(2**63, size=length, dtype=np.uint64) * 2 + 1


def _mixed(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele et al. 2014): every bit depends on every bit."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * np.uint64(factor)
    return hashes ^ (hashes >> np.uint64(31))
