"""Mano: arithmetic mod 23 without intermediate steps ("Physics of Language Models", part 4.1, Allen-Zhu 2025).

    <bos> l  prefix expression with l operators from + - *  <ans>  value

The root is an operator drawn uniformly, its left operand gets 0..l-1 of the other operators, drawn uniformly, and so on
down to residues. l is written as one residue. Published definitions differ in whether division is among the operators;
it is not here. Depth: operators.
"""

import numpy as np
from numpy.typing import NDArray

from workers.config import DataConfig
from workers.config.task_shapes import MANO_MODULUS, TASKS
from workers.tasks.task import NOTHING, Examples, Tokens, answer_tail, lay_out, one_answer

PLUS, MINUS, TIMES, BEGIN, ANSWER, FILLER = range(MANO_MODULUS, MANO_MODULUS + 6)


class Mano:
    """Expressions in prefix form; token ids: residues, operators, then `<bos>`, `<ans>` and the filler."""

    name = "mano"
    generator = "mano/1"
    split_by_hash = True

    def __init__(self, data: DataConfig) -> None:
        self.vocab_size = TASKS[self.name].vocab_size(data)
        self._data = data

    def examples(self, random: np.random.Generator, depths: Tokens) -> Examples:
        """One expression for each number of operators (B,)."""
        expressions = _expressions(random, depths)
        values = _values(expressions)
        head = np.stack([np.full_like(depths, BEGIN), depths], axis=1)
        tail = answer_tail(ANSWER, self._data.answer_delay, values[:, None])
        questions = np.concatenate([head, expressions], axis=1)
        return one_answer(*lay_out(self._data.seq_len, FILLER, questions, *tail), depths)


def _expressions(random: np.random.Generator, depths: Tokens) -> Tokens:
    """Prefix expressions (B, 2 D + 1), `NOTHING` after their end; built from stacks of how many operators are due."""
    count, width = len(depths), 2 * int(depths.max()) + 1
    rows = np.arange(count)
    stack = np.zeros((count, width + 1), dtype=np.int64)
    stack[:, 0] = depths
    height = np.ones(count, dtype=np.int64)
    expressions = np.full((count, width), NOTHING, dtype=np.int64)
    operators = random.integers(PLUS, TIMES + 1, size=(count, width))
    residues = random.integers(MANO_MODULUS, size=(count, width))
    shares = random.random((count, width))
    for place in range(width):
        open_ = height > 0
        top = np.maximum(height - 1, 0)
        due = stack[rows, top]
        splits = open_ & (due > 0)
        token = np.where(splits, operators[:, place], residues[:, place])
        expressions[:, place] = np.where(open_, token, NOTHING)
        left = (shares[:, place] * due).astype(np.int64)
        stack[rows[splits], top[splits]] = (due - 1 - left)[splits]
        stack[rows[splits], top[splits] + 1] = left[splits]
        height += np.where(splits, 1, np.where(open_, -1, 0))
    return expressions


def _values(expressions: Tokens) -> Tokens:
    """Values (B,) of prefix expressions, read from their ends with a stack of values."""
    count, width = expressions.shape
    rows = np.arange(count)
    stack: NDArray[np.int64] = np.zeros((count, width + 2), dtype=np.int64)
    height = np.zeros(count, dtype=np.int64)
    for place in range(width - 1, -1, -1):
        token = expressions[:, place]
        first, second = stack[rows, np.maximum(height - 1, 0)], stack[rows, np.maximum(height - 2, 0)]
        results = np.select(
            [token == PLUS, token == MINUS, token == TIMES], [first + second, first - second, first * second]
        )
        is_operator, is_there = token >= PLUS, token != NOTHING
        height += np.where(is_operator, -1, np.where(is_there, 1, 0))
        written = rows[is_there]
        stack[written, height[is_there] - 1] = np.where(is_operator, results % MANO_MODULUS, token)[is_there]
    return stack[:, 0]
