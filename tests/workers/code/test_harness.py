"""lm-evaluation-harness on local tasks, without a network, against probabilities and texts worked out here."""

import json
import math
from pathlib import Path

import pytest
import torch

from workers.code.harness import Likelihood, harness_metrics
from workers.code.writer import Writer
from workers.config import ModelConfig, variant_knobs
from workers.data.tokenizer import ByteTokenizer
from workers.models import LoopedTransformer

TEXTS = ["def f(x):\n    return x\n" * 4, "x = 1", "for each in range(3):\n    print(each)\n"]


@pytest.fixture(scope="module")
def writer() -> Writer:
    config = ModelConfig(
        vocab_size=257,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        **{**variant_knobs("plt"), "window": 8},
    )
    return Writer(model=LoopedTransformer(config, seed=5), tokenizer=ByteTokenizer(), max_new_tokens=8)


def log_probabilities(writer: Writer, text: str) -> list[float]:
    """Of every byte, given the separator and the bytes before it."""
    tokens = [256, *text.encode()]
    with torch.no_grad():
        scores = writer.model(torch.tensor([tokens])).logits[0].double().log_softmax(-1)
    return [float(scores[place, token]) for place, token in enumerate(tokens[1:])]


def test_likelihoods_are_sums_of_the_models_own(writer: Writer) -> None:
    likelihood = Likelihood(writer)
    for context, continuation in (("", TEXTS[2]), (TEXTS[1], " + 2"), (TEXTS[2], TEXTS[1])):
        expected = sum(log_probabilities(writer, context + continuation)[len(context) :])
        nats, greedy = likelihood.of(context, continuation)
        assert nats == pytest.approx(expected, rel=1e-5)
        assert not greedy
    written = writer.write("abc", ())[0]
    if written and "�" not in written:
        assert likelihood.of("abc", written[:1])[1] is True


def test_local_tasks_run_offline(writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lm_eval", reason="pip install 'plt-orchestrator[harness]'")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "data.jsonl"
    answer = writer.write("abc", ("\n",))[0]
    rows = [{"text": text, "question": "abc", "answer": answer, "choices": ["a", "bb"], "gold": 1} for text in TEXTS]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    head = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}}}}}\ntest_split: test\n"
    (tmp_path / "own_text.yaml").write_text(
        f"task: own_text\n{head}output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{{{text}}}}'\n"
        "metric_list: [{metric: bits_per_byte}]\n"
    )
    (tmp_path / "own_choice.yaml").write_text(
        f"task: own_choice\n{head}output_type: multiple_choice\ndoc_to_text: '{{{{question}}}}'\n"
        "doc_to_choice: '{{choices}}'\ndoc_to_target: gold\ntarget_delimiter: ''\nmetric_list: [{metric: acc}]\n"
    )
    (tmp_path / "own_answer.yaml").write_text(
        f"task: own_answer\n{head}output_type: generate_until\ndoc_to_text: '{{{{question}}}}'\n"
        "doc_to_target: '{{answer}}'\ngeneration_kwargs: {until: [\"\\n\"], max_gen_toks: 8}\n"
        "metric_list: [{metric: exact_match}]\n"
    )
    metrics = harness_metrics(writer, ["own_text", "own_choice", "own_answer"], tmp_path)
    nats = -sum(sum(log_probabilities(writer, text)) for text in TEXTS)
    size = sum(len(text.encode()) for text in TEXTS)
    assert metrics["harness/own_text/bits_per_byte"] == pytest.approx(nats / math.log(2) / size, rel=1e-5)
    chosen = sum(log_probabilities(writer, "abcbb")[3:]) > log_probabilities(writer, "abca")[3]
    assert metrics["harness/own_choice/acc"] == float(chosen)
    assert metrics["harness/own_answer/exact_match"] == 1.0
    with pytest.raises(ValueError, match="knows no task 'nothing'; give --task-folder"):
        harness_metrics(writer, ["nothing"], tmp_path)
