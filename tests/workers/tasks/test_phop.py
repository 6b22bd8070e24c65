"""p-hop induction against a solver that follows the definition one hop at a time."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.config import DataConfig
from workers.data import IGNORED, DataError
from workers.tasks.phop import Phop, guaranteed_chain, hop_targets
from workers.tasks.task_dataset import TaskDataset


def solve(symbols: list[int], query: int, hops: int) -> int:
    """The answer by definition, or IGNORED."""
    place = query
    for _ in range(hops):
        earlier = [index for index in range(place) if symbols[index] == symbols[place]]
        if not earlier:
            return IGNORED
        place = earlier[-1] + 1
    return symbols[place]


def config(**changes: object) -> DataConfig:
    return DataConfig(**{"corpus": "phop", "seq_len": 48, "eval_sequences": 50, **changes})  # type: ignore[arg-type]


def phop(data: DataConfig) -> TaskDataset:
    return TaskDataset(Phop(data), data)


@given(
    symbols=st.lists(st.integers(0, 3), min_size=1, max_size=24),
    hops=st.integers(1, 6),
)
def test_dense_targets_are_the_definition(symbols: list[int], hops: int) -> None:
    expected = [solve(symbols, query, hops) for query in range(len(symbols))]
    assert hop_targets(np.array([symbols]), hops, 4).tolist() == [expected]


def test_a_worked_example() -> None:
    #   slot:   0  1  2  3  4  5     from 5 (symbol 0): found at 0, go to 1 (symbol 1): found nowhere below 1
    symbols = [0, 1, 2, 1, 3, 0]
    assert hop_targets(np.array([symbols]), 1, 4).tolist() == [[IGNORED, IGNORED, IGNORED, 2, IGNORED, 1]]
    assert hop_targets(np.array([symbols]), 2, 4)[0, -1] == IGNORED


@given(
    hops=st.integers(1, 8),
    alphabet=st.integers(2, 6),
    extra=st.integers(0, 20),
    seed=st.integers(0, 2**32),
)
def test_the_last_symbol_always_has_its_hops(hops: int, alphabet: int, extra: int, seed: int) -> None:
    length = 2 * hops + 1 + extra
    sequences = guaranteed_chain(np.random.default_rng(seed), 20, length, hops, alphabet)
    assert sequences.shape == (20, length)
    assert sequences.min() >= 0
    assert sequences.max() < alphabet
    for symbols in sequences.tolist():
        assert all(solve(symbols, length - 1, depth) != IGNORED for depth in range(1, hops + 1))


def test_answers_and_distances_of_guaranteed_chains_are_spread_out() -> None:
    sequences = guaranteed_chain(np.random.default_rng(0), 4000, 41, 2, 4)
    answers = Counter(solve(symbols, 40, 2) for symbols in sequences.tolist())
    assert all(abs(count - 1000) < 5 * np.sqrt(4000 * 3 / 16) for count in answers.values())
    assert len(answers) == 4
    first_hops = {max(at for at in range(40) if symbols[at] == symbols[40]) for symbols in sequences.tolist()}
    assert first_hops == set(range(2, 39))  # every place that leaves room for the second pair


@pytest.mark.parametrize("delay", [0, 1, 3])
@pytest.mark.parametrize("labels", ["dense", "last"])
def test_fillers_stand_between_query_and_answer(labels: str, delay: int) -> None:
    data = config(labels=labels, answer_delay=delay)
    inputs, targets = phop(data).train_batch(0, seed=0, batch_size=16)
    count = 48 // (delay + 1) if labels == "dense" else 48 - delay
    query_slots = [index * (delay + 1) for index in range(count)] if labels == "dense" else list(range(count))
    for row, labelled in zip(inputs.tolist(), targets.tolist(), strict=True):
        symbols = [row[slot] for slot in query_slots]
        assert all(row[slot] == 4 for slot in range(48) if slot not in query_slots)
        asked = range(count) if labels == "dense" else [count - 1]
        expected = {query_slots[query] + delay: solve(symbols, query, 2) for query in asked}
        assert labelled == [expected.get(slot, IGNORED) for slot in range(48)]
    assert inputs.max() < data.vocab_size


def test_batches_depend_on_seed_and_step_alone() -> None:
    batch = phop(config()).train_batch(5, seed=1, batch_size=8)
    assert np.array_equal(batch.inputs, phop(config()).train_batch(5, seed=1, batch_size=8).inputs)
    assert not np.array_equal(batch.inputs, phop(config()).train_batch(5, seed=2, batch_size=8).inputs)
    assert not np.array_equal(batch.inputs, phop(config()).train_batch(6, seed=1, batch_size=8).inputs)


@pytest.mark.parametrize("world", [2, 4])
def test_the_global_batch_is_the_same_for_every_world_size(world: int) -> None:
    dataset = phop(config())
    shares = [dataset.train_batch(5, seed=1, batch_size=8, rank=rank, world=world) for rank in range(world)]
    whole = dataset.train_batch(5, seed=1, batch_size=8)
    assert np.array_equal(np.concatenate([share.inputs for share in shares]), whole.inputs)
    assert np.array_equal(np.concatenate([share.targets for share in shares]), whole.targets)


def test_no_evaluation_sequence_is_trained_on() -> None:
    dataset = phop(config())
    held_out = {tuple(row) for row in dataset.evaluation_set().inputs.tolist()}
    trained = {
        tuple(row)
        for seed in range(3)
        for step in range(50)
        for row in dataset.train_batch(step, seed=seed, batch_size=50).inputs.tolist()
    }
    assert len(held_out) == 50
    assert len(trained) == 7500
    assert not held_out & trained


@pytest.mark.parametrize(("labels", "delay", "most"), [("last", 0, 23), ("last", 3, 22), ("dense", 1, 11)])
def test_hops_that_do_not_fit_are_refused_with_the_most_that_do(labels: str, delay: int, most: int) -> None:
    phop(config(labels=labels, answer_delay=delay, hops=most))
    with pytest.raises(ValueError, match=f"hops is {most + 1}; it must be at most {most} in"):
        config(labels=labels, answer_delay=delay, hops=most + 1)


def test_an_evaluation_without_answers_is_refused() -> None:
    with pytest.raises(DataError, match="no slot of 1 sequences has an answer"):
        phop(config(seq_len=9, hops=4, alphabet=50, eval_sequences=1)).evaluation_set()
