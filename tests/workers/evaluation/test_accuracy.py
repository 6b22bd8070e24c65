"""Metrics against probabilities, bytes and counts worked out from the logits one slot at a time."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from workers.config import DataConfig, ModelConfig
from workers.data import IGNORED, EvaluationSet, prepare
from workers.evaluation.accuracy import evaluate
from workers.models import LoopedTransformer


def small_model(vocab_size: int) -> LoopedTransformer:
    return LoopedTransformer(
        ModelConfig(
            vocab_size=vocab_size,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=32,
        ),
        seed=1,
    )


def slots(model: LoopedTransformer, data: EvaluationSet) -> list[tuple[int, int, float, bool]]:
    """(slot, label, nats, right) of every labelled slot, in float64."""
    with torch.no_grad():
        logits = model(torch.from_numpy(data.inputs)).logits.double().numpy()
    found = []
    for row, slot in zip(*np.nonzero(data.targets != IGNORED), strict=True):
        scores, label = logits[row, slot], int(data.targets[row, slot])
        nats = float(np.log(np.exp(scores - scores.max()).sum()) + scores.max() - scores[label])
        found.append((int(slot), label, nats, int(scores.argmax()) == label))
    return found


@pytest.mark.parametrize("vocab", ["bytes", "bpe:400"])
@pytest.mark.parametrize("batch_size", [1, 5, 100])
def test_bits_per_byte_counts_the_bytes_of_the_scored_tokens(tmp_path: Path, vocab: str, batch_size: int) -> None:
    for index in range(30):
        (tmp_path / f"{index}.txt").write_text(f"naïve line {index} of text\n" * 20, encoding="utf-8")
    corpus = DataConfig(corpus=f"files:{tmp_path}/*.txt", vocab=vocab, seq_len=16, eval_sequences=12)
    data = prepare(corpus, tmp_path / "home").evaluation_set()
    model = small_model(corpus.vocab_size)
    metrics = evaluate(model, data, batch_size)
    scored = slots(model, data)
    nats = sum(each[2] for each in scored)
    lengths = np.load(next((tmp_path / "home").iterdir()) / "token_bytes.npy")
    assert set(metrics) == {"val/loss", "val/bits_per_byte", "val/accuracy"}
    assert metrics["val/loss"] == pytest.approx(nats / data.targets.size, rel=1e-5)
    scored_bytes = sum(int(lengths[label]) for _, label, _, _ in scored)
    assert metrics["val/bits_per_byte"] == pytest.approx(nats / math.log(2) / scored_bytes, rel=1e-5)
    assert metrics["val/accuracy"] == pytest.approx(sum(each[3] for each in scored) / len(scored))


def test_a_task_is_scored_on_the_second_half_beside_the_majority(tmp_path: Path) -> None:
    data = prepare(DataConfig(corpus="phop", seq_len=32, eval_sequences=40), tmp_path).evaluation_set()
    model = small_model(4)
    metrics = evaluate(model, data, 16)
    scored = slots(model, data)
    second_half = [each for each in scored if each[0] >= 16]
    assert 0 < len(second_half) < len(scored)
    assert set(metrics) == {"val/loss", "tasks/phop/accuracy", "tasks/phop/majority"}
    assert metrics["val/loss"] == pytest.approx(sum(each[2] for each in scored) / len(scored), rel=1e-5)
    right = sum(each[3] for each in second_half)
    assert metrics["tasks/phop/accuracy"] == pytest.approx(right / len(second_half))
    ((_, most),) = Counter(each[1] for each in second_half).most_common(1)
    assert metrics["tasks/phop/majority"] == pytest.approx(most / len(second_half))


def test_a_model_that_knows_the_answers_scores_one() -> None:
    symbols = np.array([[0, 1, 2, 3]])
    model = small_model(4)
    with torch.no_grad():  # logits are 100 times the one-hot of the input
        for parameter in model.parameters():
            parameter.zero_()
        model.model.norm.weight.fill_(1.0)
        model.model.embed_tokens.weight[:, :4] = torch.eye(4)
        assert model.lm_head is not None
        model.lm_head.weight[:, :4] = 25 * torch.eye(4)
    metrics = evaluate(model, EvaluationSet(symbols, symbols, task="copy"), 1)
    assert metrics == {
        "val/loss": pytest.approx(0.0, abs=1e-6),
        "tasks/copy/accuracy": 1.0,
        "tasks/copy/majority": 0.5,
    }
