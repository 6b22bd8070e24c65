"""How likely a model finds the reference solutions: bits per byte of every solution, given its prompt.

Nothing is generated or run, so it is cheap, and it says something about models that cannot write a program yet.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from workers.code.problem import Problem
from workers.data import IGNORED, Batch, EvaluationSet
from workers.data.tokenizer import Tokenizer
from workers.evaluation.accuracy import predict
from workers.models import LoopedTransformer


def reference_bits(
    model: LoopedTransformer, problems: Sequence[Problem], tokenizer: Tokenizer, seq_len: int, batch_size: int
) -> float:
    """Bits per byte of the solutions in windows of S slots."""
    data = reference_set(problems, tokenizer, seq_len)
    assert data.target_bytes is not None
    return predict(model, data, batch_size)[0] / math.log(2) / data.target_bytes


def reference_set(problems: Sequence[Problem], tokenizer: Tokenizer, seq_len: int) -> EvaluationSet:
    """Separator, prompt and solution as windows (E, S) in which each token of a solution has exactly one label."""
    separator = tokenizer.vocab_size - 1
    prompts = tokenizer.encode([problem.prompt.encode() for problem in problems])
    solutions = tokenizer.encode([problem.solution.encode() for problem in problems])
    cut = [
        window
        for prompt, solution in zip(prompts, solutions, strict=True)
        for window in windows(np.concatenate([[separator], prompt, solution]), 1 + len(prompt), seq_len, separator)
    ]
    size = sum(len(problem.solution.encode()) for problem in problems)
    return EvaluationSet(
        np.stack([window.inputs for window in cut]), np.stack([window.targets for window in cut]), target_bytes=size
    )


def windows(tokens: NDArray[np.int64], first: int, seq_len: int, padding: int) -> Iterator[Batch]:
    """Inputs and targets (S,) of every window of one text (T,), whose tokens from place `first` on are labelled.

    A text that does not fit is cut into windows that overlap by half, so that every labelled token has at least half a
    window before it, or all there is.
    """
    while first < len(tokens):
        end = min(len(tokens), max(seq_len + 1, first + max(1, seq_len // 2)))
        start = max(0, end - 1 - seq_len)
        labels = np.where(np.arange(start + 1, end) >= first, tokens[start + 1 : end], IGNORED)
        room = (0, seq_len - len(labels))
        yield Batch(
            np.pad(tokens[start : end - 1], room, constant_values=padding),
            np.pad(labels, room, constant_values=IGNORED),
        )
        first = end
