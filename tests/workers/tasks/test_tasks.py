"""Every generator against a brute-force solver that reads the tokens; splits, batches, depths, an oracle's score."""

import hashlib
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from solvers import SOLVERS

from workers.config import DataConfig
from workers.config.held_out import held_out_metrics
from workers.config.task_shapes import TASKS
from workers.data import IGNORED, DataError, EvaluationSet, prepare
from workers.evaluation.accuracy import evaluate
from workers.models.looped_transformer import LoopOutput
from workers.tasks.registry import make_task
from workers.tasks.task_dataset import TaskDataset

SETTINGS = [
    {"corpus": "phop", "seq_len": 48},
    {"corpus": "phop", "seq_len": 64, "hops": "1-4", "answer_delay": 1, "extrapolate": 2},
    {"corpus": "phop", "seq_len": 64, "hops": "1,3", "labels": "last", "answer_delay": 2},
    {"corpus": "addition", "seq_len": 133},
    {"corpus": "addition", "seq_len": 40, "operands": "2-5", "digits": 2, "answer_delay": 3},
    {"corpus": "addition", "seq_len": 60, "operands": 3, "digits": 1, "extrapolate": 4},
    {"corpus": "igsm"},
    {"corpus": "igsm", "operations": "2,5", "statements": 20, "answer_delay": 1, "seq_len": 400},
    {"corpus": "variables", "seq_len": 67},
    {"corpus": "variables", "seq_len": 50, "copies": 3, "assignments": 10, "answer_delay": 2, "extrapolate": 3},
    {"corpus": "tracking", "group": "z2", "seq_len": 40, "extrapolate": 2},
    {"corpus": "tracking", "group": "z7", "products": "5,10", "seq_len": 20, "answer_delay": 1},
    {"corpus": "tracking", "group": "s5", "seq_len": 20},
    {"corpus": "tracking", "group": "a5", "seq_len": 20},
    {"corpus": "mano", "seq_len": 16},
    {"corpus": "mano", "operators": "2,9", "seq_len": 48, "answer_delay": 3, "extrapolate": 2},
    {"corpus": "depo", "seq_len": 64},
    {"corpus": "depo", "nodes": 9, "name_tokens": 3, "answer_delay": 1, "successors": "1-3", "extrapolate": 2},
]
IDS = ["-".join(map(str, each.values())) for each in SETTINGS]


def config(settings: dict[str, object]) -> DataConfig:
    return DataConfig(**{"eval_sequences": 120, **settings})  # type: ignore[arg-type]


def dataset(data: DataConfig) -> TaskDataset:
    return TaskDataset(make_task(data), data)


def without_end(tokens: list[int], data: DataConfig) -> list[int]:
    """A sequence without the fillers behind it; of p-hop nothing, where fillers may belong to symbols."""
    filler = data.vocab_size - 1
    if data.corpus == "phop":
        return tokens
    while tokens and tokens[-1] == filler:
        tokens = tokens[:-1]
    return tokens


@pytest.mark.parametrize("settings", SETTINGS, ids=IDS)
def test_a_thousand_examples_are_what_a_solver_finds(settings: dict[str, object]) -> None:
    data = config(settings)
    inputs, targets = dataset(data).train_batch(3, seed=5, batch_size=1000)
    depths: Counter[int] = Counter()
    for row, labelled in zip(inputs.tolist(), targets.tolist(), strict=True):
        expected, depth = SOLVERS[data.corpus](without_end(row, data), data)
        assert labelled == [expected.get(slot, IGNORED) for slot in range(data.seq_len)]
        depths[depth] += 1
    trained = data.trained_depths(data.corpus)
    assert set(depths) == set(trained)
    assert all(abs(count - 1000 / len(trained)) < 5 * np.sqrt(1000 / len(trained)) for count in depths.values())
    assert inputs.min() >= 0
    assert max(inputs.max(), targets.max()) < data.vocab_size


@pytest.mark.parametrize("settings", SETTINGS, ids=IDS)
def test_evaluation_has_every_depth_and_none_of_its_sequences_is_trained_on(settings: dict[str, object]) -> None:
    data = config(settings)
    found = dataset(data)
    scored = found.evaluation_set()
    held_out = {tuple(row) for row in scored.inputs.tolist()}
    trained = {
        tuple(row)
        for seed in range(2)
        for step in range(8)
        for row in found.train_batch(step, seed=seed, batch_size=128).inputs.tolist()
    }
    assert held_out
    assert not held_out & trained
    for row, labelled, depths in zip(
        scored.inputs.tolist(), scored.targets.tolist(), scored.depths.tolist(), strict=True
    ):  # type: ignore[union-attr]
        expected, depth = SOLVERS[data.corpus](without_end(row, data), data)
        assert labelled == [expected.get(slot, IGNORED) for slot in range(data.seq_len)]
        assert max(depths[slot] for slot in expected) == depth if expected else data.corpus == "phop"
    assert set(np.unique(scored.depths[scored.answers >= 0]).tolist()) == set(data.scored_depths(data.corpus))  # type: ignore[index,operator]


@pytest.mark.parametrize("settings", SETTINGS, ids=IDS)
def test_batches_depend_on_seed_step_and_rank_alone(settings: dict[str, object]) -> None:
    data = config(settings)
    fresh, used = dataset(data), dataset(data)
    for step in (0, 31, 7):
        used.train_batch(step, seed=1, batch_size=24)
    whole = fresh.train_batch(40, seed=2, batch_size=24)
    shares = [used.train_batch(40, seed=2, batch_size=24, rank=rank, world=3) for rank in range(3)]
    assert np.array_equal(whole.inputs, np.concatenate([share.inputs for share in shares]))
    assert np.array_equal(whole.targets, np.concatenate([share.targets for share in shares]))
    assert not np.array_equal(whole.inputs, fresh.train_batch(41, seed=2, batch_size=24).inputs)
    assert not np.array_equal(whole.inputs, fresh.train_batch(40, seed=3, batch_size=24).inputs)


class Oracle(nn.Module):
    """Solves what it reads; its loops are loops of Python."""

    def __init__(self, data: DataConfig, wrong_depth: int | None = None) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(1))
        self.data, self.wrong_depth = data, wrong_depth

    def forward(self, ids: Tensor) -> LoopOutput:
        logits = torch.zeros(*ids.shape, self.data.vocab_size)
        for row, tokens in enumerate(ids.tolist()):
            labels, depth = SOLVERS[self.data.corpus](without_end(tokens, self.data), self.data)
            for slot, label in labels.items():
                logits[row, slot, label] = 50.0
            if depth == self.wrong_depth:  # one wrong token spoils an answer
                logits[row, max(labels)] = -logits[row, max(labels)]
        return LoopOutput(logits)


@pytest.mark.parametrize("settings", SETTINGS, ids=IDS)
def test_an_oracle_scores_one_at_every_depth(settings: dict[str, object]) -> None:
    data = config(settings)
    metrics = evaluate(Oracle(data), dataset(data).evaluation_set(), 50)  # type: ignore[arg-type]
    assert set(metrics) == set(held_out_metrics(data))
    for name, value in metrics.items():
        if name.endswith("accuracy"):
            assert value == 1.0
        elif name.endswith("majority"):
            assert 0 < value <= 1
    assert metrics["val/loss"] < 1e-6


def test_one_wrong_token_makes_an_answer_wrong_and_shows_at_its_depth_only() -> None:
    data = config({"corpus": "addition", "seq_len": 40, "operands": "2-4", "extrapolate": 2})
    scored = data.scored_depths("addition")
    assert scored == (2, 3, 4, 5, 6, 7, 8)
    metrics = evaluate(Oracle(data, wrong_depth=3), dataset(data).evaluation_set(), 50)  # type: ignore[arg-type]
    by_depth = {depth: metrics[f"tasks/addition/depth{depth}/accuracy"] for depth in scored}
    assert by_depth == {depth: float(depth != 3) for depth in scored}
    assert metrics["tasks/addition/accuracy"] == pytest.approx(2 / 3, abs=0.02)
    assert metrics["tasks/addition/extrapolation/accuracy"] == 1.0
    deeper = evaluate(Oracle(data, wrong_depth=8), dataset(data).evaluation_set(), 50)  # type: ignore[arg-type]
    assert deeper["tasks/addition/accuracy"] == 1.0
    assert 0 < deeper["tasks/addition/extrapolation/accuracy"] < 1


def test_whole_sequences_count_only_where_nothing_is_wrong() -> None:
    data = config({"corpus": "tracking", "group": "s3", "products": "4,8", "seq_len": 8})
    metrics = evaluate(Oracle(data, wrong_depth=8), dataset(data).evaluation_set(), 50)  # type: ignore[arg-type]
    assert metrics["tasks/tracking/sequences/accuracy"] == 0.5
    assert metrics["tasks/tracking/accuracy"] == pytest.approx(11 / 12)


@pytest.mark.parametrize(
    ("settings", "sha256"),
    [
        ({"seq_len": 64}, "c6ff8d508f35aa3c0be918d6ae91a45cfa0d24a7acdd9c1d18c524339fe64a89"),
        (
            {"seq_len": 48, "labels": "last", "hops": 4, "answer_delay": 2},
            "9318a7be3988c67558280822c523cd188233ffd11efde33341284e15f1843432",
        ),
        (
            {"seq_len": 48, "answer_delay": 1, "alphabet": 6},
            "5287056a91093ccaa95d2e5ef9c74a3b8b471e6655556cb52435c92e9df5fa64",
        ),
    ],
)
def test_phop_sequences_are_those_of_the_first_release(settings: dict[str, object], sha256: str) -> None:
    found = dataset(DataConfig(corpus="phop", **settings))  # type: ignore[arg-type]
    digest = hashlib.sha256()
    for step in range(3):
        for array in found.train_batch(step, seed=3, batch_size=8):
            digest.update(array.tobytes())
    scored = found.evaluation_set()
    digest.update(scored.inputs.tobytes())
    digest.update(scored.targets.tobytes())
    assert digest.hexdigest() == sha256


@pytest.mark.parametrize(
    "settings",
    [
        {"corpus": "tracking", "group": "z2", "products": 1, "seq_len": 4, "eval_sequences": 4},
        {"corpus": "phop", "seq_len": 3, "hops": 1, "alphabet": 2, "eval_sequences": 200},
    ],
)
def test_a_task_of_too_few_sequences_is_refused(settings: dict[str, object]) -> None:
    def use() -> None:
        found = dataset(config(settings))
        found.evaluation_set()
        found.train_batch(0, seed=0, batch_size=64)

    with pytest.raises(DataError, match="too few different sequences to hold some out"):
        use()


def test_a_mixture_gives_each_part_its_share_and_its_own_tokens(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 400)
    name = f"2*files:{tmp_path}/*.txt + phop + 3*addition"
    data = config({"corpus": name, "seq_len": 40, "operands": "2-5", "eval_sequences": 16})
    mixed = prepare(data, tmp_path / "home")
    phop_ids, addition_ids = range(257, 261), range(261, 274)
    assert mixed.vocab_size == data.vocab_size == 274
    kinds: list[str] = []
    for row, labels in zip(*(array.tolist() for array in mixed.train_batch(0, seed=0, batch_size=60)), strict=True):
        kind = next(ids for ids in (range(257), phop_ids, addition_ids) if row[0] in ids)
        assert all(token in kind for token in row)
        assert all(label in kind or label == IGNORED for label in labels)
        kinds.append(str(kind))
        if kind == addition_ids:
            own = config({**vars(data), "corpus": "addition"})
            expected, _ = SOLVERS["addition"](without_end([token - 261 for token in row], own), own)
            assert labels == [expected[slot] + 261 if slot in expected else IGNORED for slot in range(40)]
    assert [kinds.count(str(kind)) for kind in (range(257), phop_ids, addition_ids)] == [20, 10, 30]
    shares = [mixed.train_batch(7, seed=1, batch_size=60, rank=rank, world=5).inputs for rank in range(5)]
    assert np.array_equal(mixed.train_batch(7, seed=1, batch_size=60).inputs, np.concatenate(shares))
    scored = mixed.evaluation_set()
    assert [part.task for part in scored.parts] == [None, "phop", "addition"]
    assert len(scored.inputs) == sum(len(part.inputs) for part in scored.parts)
    flat = EvaluationSet(scored.inputs, scored.targets)
    model = Constant(274)
    whole, parts = evaluate(model, flat, 9), evaluate(model, scored, 9)  # type: ignore[arg-type]
    assert parts["val/loss"] == pytest.approx(whole["val/loss"])
    assert set(parts) == set(held_out_metrics(data))


class Constant(nn.Module):
    """Says the same of every slot."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.arange(vocab_size) / vocab_size)

    def forward(self, ids: Tensor) -> LoopOutput:
        return LoopOutput(self.scores.expand(*ids.shape, -1))


def test_a_part_of_a_mixture_trains_on_what_the_task_alone_would_see() -> None:
    data = config({"corpus": "3*mano + addition", "seq_len": 133})
    mixed, alone = prepare(data, Path("unused")), dataset(config({"corpus": "mano", "seq_len": 133}))
    rows = np.concatenate([mixed.train_batch(step, seed=4, batch_size=32).inputs for step in range(16)])
    own = rows[np.arange(len(rows)) % 4 < 3]
    assert np.array_equal(own, alone.train_batch(0, seed=4, batch_size=len(own)).inputs)


def test_every_task_is_in_both_lists() -> None:
    for name in TASKS:
        task = make_task(DataConfig(corpus=name))
        assert (task.name, task.vocab_size) == (name, TASKS[name].vocab_size(DataConfig(corpus=name)))
    assert set(SOLVERS) == set(TASKS)
