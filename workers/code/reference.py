"""How likely a model finds the reference solutions: bits per byte of every solution, given its prompt.

Nothing is generated or run, so it is cheap, and it says something about models that cannot write a program yet.
"""

import math
from collections.abc import Sequence

import numpy as np

from workers.code.problem import Problem
from workers.data import IGNORED, EvaluationSet
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
    """Separator, prompt and solution as windows (E, S) in which each token of a solution has exactly one label.

    A text that does not fit is cut into windows that overlap by half, so that every labelled token has at least half a
    window before it, or all there is.
    """
    separator = tokenizer.vocab_size - 1
    prompts = tokenizer.encode([problem.prompt.encode() for problem in problems])
    solutions = tokenizer.encode([problem.solution.encode() for problem in problems])
    inputs, targets = [], []
    for prompt, solution in zip(prompts, solutions, strict=True):
        tokens = np.concatenate([[separator], prompt, solution])
        first = 1 + len(prompt)
        while first < len(tokens):
            end = min(len(tokens), max(seq_len + 1, first + max(1, seq_len // 2)))
            start = max(0, end - 1 - seq_len)
            labels = np.where(np.arange(start + 1, end) >= first, tokens[start + 1 : end], IGNORED)
            padding = seq_len - len(labels)
            inputs.append(np.pad(tokens[start : end - 1], (0, padding), constant_values=separator))
            targets.append(np.pad(labels, (0, padding), constant_values=IGNORED))
            first = end
    size = sum(len(problem.solution.encode()) for problem in problems)
    return EvaluationSet(np.stack(inputs), np.stack(targets), target_bytes=size)
