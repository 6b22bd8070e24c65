"""Symbolic i-GSM (Saunshi et al. 2025, arXiv 2502.17416, appendix A, after Ye et al. 2024): a DAG of sums mod 7.

    E#I := 4 . K#N := I#N + J#O - F#K . ... I#P ?   ->   residue

Four levels of four entities, named by letters that are drawn anew for every problem; a parameter `X#Y` is an edge from
an entity to one of the next level. Of all 48 edges, `statements` are parameters, each with a layer: a parameter of
layer 0 is a constant; one of layer l is a sum or difference of one to three others, one of which is of layer l - 1 and
none of a higher one. The asked parameter has layer d, so its value takes exactly d sums one after the other. Statements
stand in random order. There are no abstract parameters. Depth: d. Chance is one in seven.
"""

import numpy as np
from numpy.typing import NDArray

from workers.config import DataConfig
from workers.config.task_shapes import (
    IGSM_EDGES,
    IGSM_ENTITIES,
    IGSM_LETTERS,
    IGSM_LEVELS,
    IGSM_MODULUS,
    IGSM_STATEMENT,
    IGSM_TERMS,
    TASKS,
)
from workers.tasks.task import NOTHING, Examples, Tokens, answer_tail, distinct, lay_out, one_answer

HASH, BECOMES, PLUS, MINUS, STOP, QUERY, FILLER = range(IGSM_LETTERS + IGSM_MODULUS, IGSM_LETTERS + IGSM_MODULUS + 7)
ZERO = IGSM_LETTERS
"""Token id of the residue 0; letters come before it."""


class Igsm:
    """Problems of P statements; token ids: letters, residues, then `#`, `:=`, `+`, `-`, `.`, `?` and the filler."""

    name = "igsm"
    generator = "igsm/1"
    split_by_hash = True

    def __init__(self, data: DataConfig) -> None:
        self.vocab_size = TASKS[self.name].vocab_size(data)
        self._data = data

    def examples(self, random: np.random.Generator, depths: Tokens) -> Examples:
        """One problem for each d (B,)."""
        count, size = len(depths), self._data.statements
        layers = _layers(random, depths, size)
        terms = _terms(random, layers)
        minus = random.random(terms.shape) < 0.5
        minus[:, :, 0] = False
        constants = random.integers(IGSM_MODULUS, size=(count, size))
        values = _values(constants, terms, minus)
        names = _names(random, count, size)
        statements = _statements(names, constants, terms, minus)
        order = np.argsort(random.random((count, size)), axis=1)
        shuffled = np.take_along_axis(statements, order[:, :, None], axis=1).reshape(count, -1)
        last = np.full(count, size - 1)  # layers ascend, so the last parameter is of layer d
        query = np.insert(names[np.arange(count), last], 1, HASH, axis=1)
        tail = answer_tail(QUERY, self._data.answer_delay, ZERO + values[:, -1:])
        questions = np.concatenate([shuffled, query], axis=1)
        return one_answer(*lay_out(self._data.seq_len, FILLER, questions, *tail), depths)


def _layers(random: np.random.Generator, depths: Tokens, size: int) -> Tokens:
    """Layers 0..d (B, P), ascending, each there at least once."""
    drawn = (random.random((len(depths), size)) * (depths[:, None] + 1)).astype(np.int64)
    places = np.arange(size)
    return np.sort(np.where(places <= depths[:, None], places, drawn), axis=1)


def _terms(random: np.random.Generator, layers: Tokens) -> Tokens:
    """The parameters (B, P, 3) that each is made of, all different, `NOTHING` for those that are not there."""
    count, size = layers.shape
    terms = np.full((count, size, IGSM_TERMS), NOTHING, dtype=np.int64)
    sizes = random.integers(1, IGSM_TERMS + 1, size=(count, size))
    for place in range(1, size):
        layer = layers[:, place, None]
        scores = random.random((count, place))
        below = layers[:, :place] < layer
        first = np.where(layers[:, :place] == layer - 1, scores + 1, -1).argmax(1)
        scores = np.where(below, scores, -1)
        scores[np.arange(count), first] = 2
        best = np.argsort(-scores, axis=1)[:, :IGSM_TERMS]
        usable = np.take_along_axis(scores, best, axis=1) >= 0
        chosen = usable & (np.arange(best.shape[1]) < sizes[:, place, None]) & (layer > 0)
        terms[:, place, : best.shape[1]] = np.where(chosen, best, NOTHING)
    return terms


def _values(constants: Tokens, terms: Tokens, minus: NDArray[np.bool_]) -> Tokens:
    """Residues (B, P) of all parameters, in the order of their layers."""
    values = constants.copy()
    rows = np.arange(len(values))[:, None]
    for place in range(1, values.shape[1]):
        own = terms[:, place]
        signed = np.where(minus[:, place], -1, 1) * values[rows, np.maximum(own, 0)]
        sums = np.where(own == NOTHING, 0, signed).sum(1) % IGSM_MODULUS
        values[:, place] = np.where(own[:, 0] == NOTHING, values[:, place], sums)
    return values


def _names(random: np.random.Generator, count: int, size: int) -> Tokens:
    """Letters (B, P, 2) of the edges that are parameters."""
    letters = distinct(random, count, IGSM_LETTERS, IGSM_LEVELS * IGSM_ENTITIES)
    edges = distinct(random, count, IGSM_EDGES, size)
    level, within = np.divmod(edges, IGSM_ENTITIES**2)
    upper, lower = np.divmod(within, IGSM_ENTITIES)
    ends = np.stack([level * IGSM_ENTITIES + upper, (level + 1) * IGSM_ENTITIES + lower], axis=2)
    named: Tokens = letters[np.arange(count)[:, None, None], ends]
    return named


def _statements(names: Tokens, constants: Tokens, terms: Tokens, minus: NDArray[np.bool_]) -> Tokens:
    """Tokens of every statement (B, P, 16), with `NOTHING` where a term is not there."""
    count, size = constants.shape
    statements = np.full((count, size, IGSM_STATEMENT), NOTHING, dtype=np.int64)
    statements[:, :, 0], statements[:, :, 1], statements[:, :, 2] = names[:, :, 0], HASH, names[:, :, 1]
    statements[:, :, 3] = BECOMES
    statements[:, :, -1] = STOP
    rows = np.arange(count)[:, None]
    for index in range(IGSM_TERMS):
        term = terms[:, :, index]
        own = names[rows, np.maximum(term, 0)]
        written = np.stack([own[:, :, 0], np.full_like(term, HASH), own[:, :, 1]], axis=2)
        at = 4 + 4 * index
        statements[:, :, at : at + 3] = np.where(term[:, :, None] == NOTHING, NOTHING, written)
        if index:
            sign = np.where(minus[:, :, index], MINUS, PLUS)
            statements[:, :, at - 1] = np.where(term == NOTHING, NOTHING, sign)
    constant = terms[:, :, 0] == NOTHING
    statements[:, :, 4] = np.where(constant, ZERO + constants, statements[:, :, 4])
    return statements
