"""Batches of text are a pure function of (seed, step, rank, world), an epoch sees everything, evaluation is fixed."""

from pathlib import Path

import numpy as np
import pytest

from workers.config import DataConfig
from workers.data import DataError, Dataset, prepare
from workers.data.corpus import read_corpus

SEQ_LEN = 24
LINE = "{:07d}\n"  # any SEQ_LEN bytes occur once in the whole corpus


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for file in range(20):
        lines = (LINE.format(1000 * file + line) for line in range(90))
        (folder / f"{file}.txt").write_text("".join(lines))
    return folder


@pytest.fixture
def dataset(texts: Path, tmp_path: Path) -> Dataset:
    return prepare(config(texts), tmp_path)


def config(texts: Path, *, seq_len: int = SEQ_LEN, eval_sequences: int = 10) -> DataConfig:
    return DataConfig(corpus=f"files:{texts}/*.txt", seq_len=seq_len, eval_sequences=eval_sequences)


def split_tokens(texts: Path) -> list[list[int]]:
    sides = read_corpus(f"files:{texts}/*.txt").split()
    return [[token for document in side for token in [*document.text, 256]] for side in sides]


def find(window: list[int], tokens: list[int]) -> int:
    text, part = "".join(map(chr, tokens)), "".join(map(chr, window))
    assert text.count(part) == 1
    return text.index(part)


def test_targets_are_the_next_tokens_of_the_training_split(dataset: Dataset, texts: Path) -> None:
    tokens, _ = split_tokens(texts)
    batch = dataset.train_batch(3, seed=1, batch_size=4)
    assert batch.inputs.shape == batch.targets.shape == (4, SEQ_LEN)
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        find([*inputs, targets[-1]], tokens)
        assert targets[:-1] == inputs[1:]


def test_an_epoch_sees_each_window_once_and_the_next_epoch_others(dataset: Dataset, texts: Path) -> None:
    tokens, _ = split_tokens(texts)
    windows = len(tokens) // SEQ_LEN - 1
    batches = [dataset.train_batch(step, seed=5, batch_size=windows).inputs.tolist() for step in range(2)]
    starts = [sorted(find(window, tokens) for window in batch) for batch in batches]
    for epoch in starts:
        assert np.diff(epoch).tolist() == [SEQ_LEN] * (windows - 1)
        assert 0 <= epoch[0] < SEQ_LEN
    assert starts[0] != starts[1]


def test_a_batch_may_end_one_epoch_and_begin_the_next(dataset: Dataset, texts: Path) -> None:
    windows = len(split_tokens(texts)[0]) // SEQ_LEN - 1
    size = windows // 2 + 1
    halves = [dataset.train_batch(step, seed=5, batch_size=size).inputs for step in range(2)]
    whole = [dataset.train_batch(step, seed=5, batch_size=windows).inputs for step in range(2)]
    assert np.array_equal(np.concatenate(halves), np.concatenate(whole)[: 2 * size])


@pytest.mark.parametrize("world", [1, 2, 3, 6])
def test_the_global_batch_is_the_same_for_every_world_size(dataset: Dataset, world: int) -> None:
    whole = dataset.train_batch(7, seed=2, batch_size=6)
    shares = [dataset.train_batch(7, seed=2, batch_size=6, rank=rank, world=world) for rank in range(world)]
    assert np.array_equal(np.concatenate([share.inputs for share in shares]), whole.inputs)
    assert np.array_equal(np.concatenate([share.targets for share in shares]), whole.targets)


@pytest.mark.parametrize(("rank", "world"), [(2, 2), (-1, 2), (0, 4)])
def test_a_batch_that_cannot_be_shared_is_refused(dataset: Dataset, rank: int, world: int) -> None:
    with pytest.raises(ValueError, match="batch of 6"):
        dataset.train_batch(0, seed=0, batch_size=6, rank=rank, world=world)


def test_batches_depend_on_seed_and_step_alone(dataset: Dataset, texts: Path, tmp_path: Path) -> None:
    later = dataset.train_batch(9, seed=2, batch_size=6).inputs
    again = prepare(config(texts), tmp_path).train_batch(9, seed=2, batch_size=6).inputs
    assert np.array_equal(later, again)
    assert not np.array_equal(later, dataset.train_batch(9, seed=3, batch_size=6).inputs)
    assert not np.array_equal(later, dataset.train_batch(8, seed=2, batch_size=6).inputs)


def test_evaluation_windows_are_held_out_and_do_not_overlap(dataset: Dataset, texts: Path) -> None:
    _, tokens = split_tokens(texts)
    held_out = dataset.evaluation_set()
    assert held_out.inputs.shape == (10, SEQ_LEN)
    spans = [[*row, last] for row, last in zip(held_out.inputs.tolist(), held_out.targets[:, -1].tolist(), strict=True)]
    starts = [find(span, tokens) for span in spans]
    assert min(np.diff(starts)) >= SEQ_LEN
    assert starts[0] == 0
    assert starts[-1] == len(tokens) - 1 - SEQ_LEN
    assert np.array_equal(held_out.targets[:, :-1], held_out.inputs[:, 1:])


@pytest.mark.parametrize("eval_sequences", [3, 10_000])
def test_the_bytes_of_the_evaluation_targets_are_counted(texts: Path, tmp_path: Path, eval_sequences: int) -> None:
    held_out = prepare(config(texts, eval_sequences=eval_sequences), tmp_path).evaluation_set()
    separators = int((held_out.targets == 256).sum())
    assert separators > 0
    assert held_out.target_bytes == held_out.targets.size - separators


def test_a_small_held_out_split_is_scored_whole_and_the_record_says_so(texts: Path, tmp_path: Path) -> None:
    dataset = prepare(config(texts, eval_sequences=10_000), tmp_path)
    windows = (len(split_tokens(texts)[1]) - 1) // SEQ_LEN
    assert dataset.evaluation_set().inputs.shape == (windows, SEQ_LEN)
    assert dataset.info()["eval_sequences"] == windows


def test_a_sequence_longer_than_a_split_is_refused(texts: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="seq_len is 5000 and the held-out split"):
        prepare(config(texts, seq_len=5000), tmp_path)
    with pytest.raises(DataError, match="seq_len is 50000 and the training split"):
        prepare(config(texts, seq_len=50_000), tmp_path)
