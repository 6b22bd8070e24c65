"""What a generated task is: a pure function from random numbers and depths to sequences with exact answers.

Shapes: B sequences, S slots, Q tokens of a question, A tokens of an answer. A sequence is the question without its last
token, the query (that last token), `answer_delay` fillers, the answer, then fillers to the end. A label stands at the
slot from which its token is to be predicted: the first one at the query or at the last filler before the answer, the
others at the answer's own tokens. So an answer whose every label is predicted is the one that greedy decoding writes.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from workers.data.dataset import IGNORED

Tokens = NDArray[np.int64]

NOTHING = -1
"""Marks tokens that are not there in rows of different length, slots that are not scored, and unknown depths."""


class Examples(NamedTuple):
    """Sequences, their labels, and which labels are one answer."""

    inputs: Tokens
    """Token ids (B, S)."""
    targets: Tokens
    """Labels (B, S)."""
    answers: Tokens
    """Which answer of its sequence a label belongs to, counted from 0; `NOTHING` where it is not scored (B, S)."""
    depths: Tokens
    """Depth of every label's answer (B, S)."""


class Task(Protocol):
    """One task with its settings."""

    name: str
    """As in metrics: `tasks/NAME/accuracy`."""
    generator: str
    """Changes whenever the same settings and random numbers would give other sequences."""
    vocab_size: int
    """Token ids 0..V-1 that it uses."""
    split_by_hash: bool
    """Whether held-out sequences are those of certain hashes, and not whichever the evaluation draws."""

    def examples(self, random: np.random.Generator, depths: Tokens) -> Examples:
        """One sequence for each depth (B,)."""


def lay_out(
    seq_len: int, filler: int, questions: Tokens, tail_inputs: Tokens, tail_targets: Tokens
) -> tuple[Tokens, Tokens]:
    """Inputs and targets (B, S): the tokens of every question (B, Q), then its tail (B, T), then fillers.

    `NOTHING` in a question is dropped and the rest moves up; in the tail's inputs it becomes a filler. `IGNORED` in the
    tail's targets is no label.
    """
    count = len(questions)
    inputs = np.full((count, seq_len), filler, dtype=np.int64)
    targets = np.full((count, seq_len), IGNORED, dtype=np.int64)
    there = questions != NOTHING
    lengths = there.sum(1)
    rows, columns = np.nonzero(there)
    starts = np.cumsum(lengths) - lengths
    inputs[rows, np.arange(len(rows)) - starts[rows]] = questions[rows, columns]
    slots = lengths[:, None] + np.arange(tail_inputs.shape[1])
    inside = slots < seq_len
    if not inside.all():
        beyond = ~inside & ((tail_inputs != NOTHING) | (tail_targets != IGNORED))
        if beyond.any():
            raise ValueError(
                f"seq_len is {seq_len}; a sequence of {int((slots * beyond).max()) + 1} slots does not fit"
            )
        slots = np.minimum(slots, seq_len - 1)
    keep_rows, keep = np.nonzero(inside)
    inputs[keep_rows, slots[inside]] = np.where(tail_inputs == NOTHING, filler, tail_inputs)[keep_rows, keep]
    targets[keep_rows, slots[inside]] = tail_targets[keep_rows, keep]
    return inputs, targets


def answer_tail(query: int, delay: int, answers: Tokens) -> tuple[Tokens, Tokens]:
    """Tail inputs and targets (B, 1 + delay + A - 1) of one answer (B, A), whose unused last tokens are `NOTHING`."""
    count, width = answers.shape
    inputs = np.full((count, delay + width), NOTHING, dtype=np.int64)
    inputs[:, 0] = query
    inputs[:, delay + 1 :] = answers[:, :-1]
    targets = np.full((count, delay + width), IGNORED, dtype=np.int64)
    targets[:, delay:] = np.where(answers == NOTHING, IGNORED, answers)
    return inputs, targets


def one_answer(inputs: Tokens, targets: Tokens, depths: Tokens) -> Examples:
    """Examples whose labels are all one answer per sequence, of the sequence's depth (B,)."""
    answers = np.where(targets == IGNORED, NOTHING, 0)
    return Examples(inputs, targets, answers, np.repeat(depths[:, None], inputs.shape[1], axis=1))


def distinct(random: np.random.Generator, rows: int, choices: int, count: int) -> Tokens:
    """`count` different numbers below `choices` for every row, in random order (B, count)."""
    return np.argsort(random.random((rows, choices)), axis=1)[:, :count]
