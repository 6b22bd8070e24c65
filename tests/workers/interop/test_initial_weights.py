"""Fine-tuning starts from a checkpoint's weights, whatever the loops are changed to."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from workers.config import BenchmarkConfig, DataConfig, TrainConfig
from workers.data import prepare
from workers.evaluation.accuracy import evaluate
from workers.evaluation.decode_benchmark import measure
from workers.execution import execute
from workers.interop.errors import InteropError
from workers.interop.initial_weights import take_weights
from workers.interop.reading import load_model
from workers.models import LoopedTransformer, load_pretrained
from workers.protocol import FailureReason, TrialOutcome, TrialRequest

Make = Callable[..., Any]
Ids = Callable[..., Tensor]


@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        ("iquest-loop", {}),
        ("iquest-loop", {"gate_polarity": "local"}),
        ("plt", {}),
        ("plt", {"gate_polarity": "global"}),
        ("loopcoder-v2", {}),
        ("vanilla", {}),
    ],
)
def test_the_same_settings_give_the_same_function(variant: str, changes: dict, made: Make, random_ids: Ids) -> None:
    """From the exported folder, whose gates weigh the full context, and from our own."""
    ours, ids = made(variant), random_ids(1, 30)
    for folder in (ours.folder, ours.checkpoint):
        model = LoopedTransformer(replace(ours.model.config, **changes), seed=9, dtype=torch.float64)
        take_weights(model, folder)
        with torch.inference_mode():
            torch.testing.assert_close(model(ids).logits, ours.logits(ids), atol=1e-9, rtol=0)


def test_the_loop_count_changes_and_the_weights_stay(made: Make) -> None:
    ours = made("iquest-loop")
    model = LoopedTransformer(replace(ours.model.config, num_loops=4, window=9, clp=True), seed=9)
    assert take_weights(model, ours.folder) == "25 tensors taken, 0 gate tensors new"
    state = load_pretrained(ours.checkpoint).state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_gates_that_read_something_else_are_new(made: Make) -> None:
    fresh = LoopedTransformer(made("plt").model.config, seed=9)
    for source in ("loopcoder-v2", "vanilla"):
        model = LoopedTransformer(fresh.config, seed=9)
        assert take_weights(model, made(source).folder) == "21 tensors taken, 4 gate tensors new"
        for name, tensor in model.state_dict().items():
            origin = fresh.state_dict() if "plt_gate" in name else load_pretrained(made(source).checkpoint).state_dict()
            assert torch.equal(tensor, origin[name])


def test_sizes_must_fit(made: Make) -> None:
    config = made("vanilla").model.config
    for changes, message in (
        ({"vocab_size": 62}, r"embed_tokens.weight has shape \(61, 64\)"),
        ({"num_hidden_layers": 3}, "lacks model.layers.2"),
    ):
        with pytest.raises(InteropError, match=message):
            take_weights(LoopedTransformer(replace(config, **changes)), made("vanilla").folder)


def trial(folder: Path, initial: Path | None, vocab_size: int, config: Any) -> TrialRequest:
    return TrialRequest(
        attempt_id="0-1",
        model=replace(config, vocab_size=vocab_size, max_position_embeddings=16),
        data=DataConfig(corpus="phop", seq_len=16, eval_sequences=16, alphabet=vocab_size, hops=1),
        train=TrainConfig(tokens=64, batch_size=4, evaluations=1, lr=1e-12, precision="float32", compile="off"),
        seed=3,
        initial=None if initial is None else str(initial),
        data_folder=str(folder / "data"),
        folder=str(folder / "attempt"),
        threads=1,
    )


def test_a_trial_starts_from_a_checkpoint_and_an_imported_model_is_evaluated_and_benchmarked(
    made: Make, tmp_path: Path
) -> None:
    """A step that changes nothing: the trial measures what the imported model measures alone."""
    ours = made("iquest-loop")
    request = trial(tmp_path, ours.folder, 61, ours.model.config)
    *_, outcome = execute(request)
    assert isinstance(outcome, TrialOutcome)
    assert outcome.failure is None, outcome.failure
    model = load_model(ours.folder)
    alone = evaluate(model, prepare(request.data, tmp_path / "data").evaluation_set(), 8)
    for name, value in alone.items():
        assert outcome.metrics[name] == pytest.approx(value, rel=1e-5), name
    *_, untaught = execute(trial(tmp_path / "other", None, 61, ours.model.config))
    assert isinstance(untaught, TrialOutcome)
    assert untaught.metrics["val/loss"] != pytest.approx(alone["val/loss"], rel=1e-2)
    grid = BenchmarkConfig(context=16, generate=2, repeats=1, precision="float32")
    metrics, _ = measure(model.config, grid, seed=0)
    assert metrics["kv/bytes_per_sequence"] == 2 * 2 * 1 * 32 * 4 * (16 + 5)


def test_a_checkpoint_that_does_not_fit_fails_the_trial_for_good(made: Make, tmp_path: Path) -> None:
    ours = made("iquest-loop")
    *_, outcome = execute(trial(tmp_path, ours.folder, 9, ours.model.config))
    assert isinstance(outcome, TrialOutcome)
    assert outcome.failure is not None
    assert outcome.failure.reason is FailureReason.INVALID
    assert "model.embed_tokens.weight has shape (61, 64)" in outcome.failure.message
