"""What the trainer and the evaluation need of any data, text or generated.

Arrays are numpy int64, so that nothing here imports torch. `targets[b, t]` is the label of slot t: the next token of a
text, or a task's answer; slots without a label hold `IGNORED`. Batches are a pure function of (seed, step, rank,
world): resuming, another number of workers, or another architecture changes nothing about the data.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

IGNORED = -100
"""Label of a slot that is not scored (`torch.nn.functional.cross_entropy` ignores it by default)."""

TRAIN_STREAM, EVALUATION_STREAM = 0, 1
"""Streams of random numbers that share no counter, whatever the seed."""


class Batch(NamedTuple):
    """Sequences and their labels."""

    inputs: NDArray[np.int64]
    """Token ids (B, S)."""
    targets: NDArray[np.int64]
    """Labels (B, S)."""


@dataclass(frozen=True)
class EvaluationSet:
    """The fixed sequences that every configuration and seed is scored on."""

    inputs: NDArray[np.int64]
    """Token ids (E, S)."""
    targets: NDArray[np.int64]
    """Labels (E, S)."""
    target_bytes: int | None = None
    """Bytes of text that the labels stand for; None for a task."""
    task: str | None = None
    """Name of the generated task; None for text."""
    answers: NDArray[np.int64] | None = None
    """Task: which answer of its sequence a label belongs to, -1 where it is not scored (E, S). None: every label of the
    second half of the slots is an answer of its own."""
    depths: NDArray[np.int64] | None = None
    """Task: depth of every label's answer (E, S); None where there is only one."""
    deepest_trained: int | None = None
    """Task: the largest depth that is trained on; None when nothing deeper is scored."""
    whole_sequences: bool = False
    """Task: whether the share of sequences without any wrong answer is a metric too."""
    parts: "tuple[EvaluationSet, ...]" = ()
    """The members of a mixture, each scored by itself; `inputs` and `targets` are theirs, one after the other."""


class Source(Protocol):
    """Training sequences by number: what a mixture is made of."""

    def sequences(self, numbers: NDArray[np.int64], *, seed: int) -> Batch:
        """The training sequences of these ascending numbers, counted from 0 (n, S)."""

    def evaluation_set(self) -> EvaluationSet:
        """Held-out sequences."""

    def info(self) -> Mapping[str, Any]:
        """Plain facts for the record."""


class Dataset(Protocol):
    """Training batches and an evaluation set."""

    vocab_size: int
    """Token ids that the model must know."""
    seq_len: int
    """Slots per sequence, S."""

    def train_batch(self, step: int, *, seed: int, batch_size: int, rank: int = 0, world: int = 1) -> Batch:
        """This rank's share (B / world, S) of the global batch of `step`, which is the same whatever the world size."""

    def evaluation_set(self) -> EvaluationSet:
        """Held-out sequences."""

    def info(self) -> Mapping[str, Any]:
        """Plain facts for the record: what the data is, and how much of it there is."""


def random_stream(seed: int, stream: int, position: int) -> np.random.Generator:
    """Random numbers for one position of a stream, by numpy's counter-based Philox.

    The position sits in the counter's highest word, so positions and streams never overlap.
    """
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=[0, 0, 0, position]))


def rank_slice(batch_size: int, rank: int, world: int) -> slice:
    """Which rows of the global batch are this rank's."""
    if not 0 <= rank < world or batch_size % world:
        raise ValueError(
            f"rank {rank} of {world} cannot share a batch of {batch_size}; use a batch_size that {world} workers divide"
        )
    share = batch_size // world
    return slice(rank * share, (rank + 1) * share)
