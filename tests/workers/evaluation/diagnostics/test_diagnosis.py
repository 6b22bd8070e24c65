"""Every diagnostic against float64 code that shares nothing with ours, on golden checkpoints and on all variants."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.workers.evaluation.diagnostics.reference import Reference, diagnostics
from workers.config import VARIANTS, ModelConfig
from workers.data import IGNORED, EvaluationSet
from workers.evaluation.diagnostics import diagnose, routing
from workers.evaluation.diagnostics.diagnosis import probe_rows
from workers.evaluation.diagnostics.states import effective_rank
from workers.models import LoopedTransformer

Configure = Callable[..., ModelConfig]
Make = Callable[..., LoopedTransformer]
EVERY_LOOP = {
    "step_size",
    "fixed_point_gap",
    "effective_rank",
    "attention_entropy",
    "head_rank",
    "head_cosine",
    "lens_loss",
    "true_rank",
    "lens_entropy",
}
LATER_LOOPS = {"update_cosine", "attention_kl", "lens_kl", "peak_share"}


def next_tokens(ids: Tensor) -> NDArray[np.int64]:
    """Labels of a text, with the last slot and, in the second sequence, every third one unlabelled."""
    targets = np.full(ids.shape, IGNORED, dtype=np.int64)
    targets[:, :-1] = ids.numpy()[:, 1:]
    targets[1::2, ::3] = IGNORED
    return targets


def reference_of(model: LoopedTransformer) -> Reference:
    tensors = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    return Reference(model.config.to_dict(), tensors)


def test_the_reference_gives_the_golden_values(golden: Any) -> None:
    reference, loops = reference_of(golden.model), golden.model.config.num_loops
    for row, ids in enumerate(golden.ids.numpy()):
        passes = reference.run(ids, loops)
        hidden = np.stack([one.hidden for one in passes])
        np.testing.assert_allclose(hidden, golden.expected["hidden_per_loop"][:, row], atol=1e-9)
        if "gates" in golden.expected:
            gates = golden.expected["gates"][:, :, row].numpy()
            shares = np.stack([np.stack(one.share) for one in passes[1:]])
            share = gates if golden.model.config.gate_polarity == "global" else 1 - gates
            np.testing.assert_allclose(shares, share, atol=1e-9)


def test_golden_variants_equal_the_reference(golden: Any) -> None:
    inputs, targets = golden.ids.numpy(), next_tokens(golden.ids)
    found = diagnose(golden.model, EvaluationSet(inputs, targets), sequences=2, batch_size=1)
    expected = diagnostics(reference_of(golden.model), inputs, targets)
    assert found.metrics.keys() == expected.keys()
    for name, value in expected.items():
        assert found.metrics[name] == pytest.approx(value, abs=1e-4), name


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("num_loops", [1, 3])
def test_every_variant_equals_the_reference(
    variant: str, num_loops: int, config_of: Configure, make_model: Make, random_ids: Callable[..., Tensor]
) -> None:
    config = config_of(variant, num_loops=num_loops)
    model = make_model(replace(config, window=3) if config.local == "swa" else config)
    ids = random_ids(2, 9)
    found = diagnose(model, EvaluationSet(ids.numpy(), next_tokens(ids)), sequences=2, batch_size=2)
    expected = diagnostics(reference_of(model), ids.numpy(), next_tokens(ids))
    assert found.metrics.keys() == expected.keys()
    for name, value in expected.items():
        assert found.metrics[name] == pytest.approx(value, abs=1e-6), name
    names = {name.rsplit("/", 1)[1] for name in found.metrics}
    assert names >= EVERY_LOOP
    assert names >= LATER_LOOPS or model.config.num_loops == 1


@pytest.mark.parametrize("gate", [0.0, 0.5, 1.0])
def test_a_fixed_gate_equals_the_reference(
    gate: float, config_of: Configure, make_model: Make, random_ids: Callable[..., Tensor]
) -> None:
    model = make_model(config_of("plt", num_loops=3, window=3, gate_mode=gate, gate_polarity="global"))
    ids = random_ids(1, 9)
    found = diagnose(model, EvaluationSet(ids.numpy(), next_tokens(ids)), sequences=1, batch_size=1)
    expected = diagnostics(reference_of(model), ids.numpy(), next_tokens(ids))
    assert found.metrics == pytest.approx(expected, abs=1e-6)


def test_blocks_and_batches_change_nothing(
    config_of: Configure, make_model: Make, random_ids: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = make_model(config_of("plt", num_loops=2, window=4)), random_ids(5, 13)
    data = EvaluationSet(ids.numpy(), next_tokens(ids))
    whole = diagnose(model, data, sequences=5, batch_size=5)
    monkeypatch.setattr(routing, "BLOCK_ELEMENTS", 2 * 4 * 13 * 5)
    monkeypatch.setattr("workers.evaluation.diagnostics.lens.BLOCK_LOGITS", 61 * 3)
    pieces = diagnose(model, data, sequences=5, batch_size=2)
    assert {value[:5] for value in pieces.values} == {value[:5] for value in whole.values}
    assert pieces.metrics == pytest.approx(whole.metrics, abs=1e-10)


def test_no_square_of_the_sequence_is_ever_made(
    config_of: Configure, make_model: Make, random_ids: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[tuple[int, ...]] = []
    log_attention = routing.log_attention

    def watched(*arguments: Any) -> Tensor:
        made = log_attention(*arguments)
        shapes.append(tuple(made.shape))
        return made

    monkeypatch.setattr(routing, "log_attention", watched)
    monkeypatch.setattr(routing, "BLOCK_ELEMENTS", 4 * 64 * 4)
    model, ids = make_model(config_of("plt", num_loops=2, window=4)), random_ids(1, 64)
    diagnose(model, EvaluationSet(ids.numpy(), next_tokens(ids)), sequences=1, batch_size=1)
    assert max(rows for _, _, rows, _ in shapes) == 4


def test_layers_heads_and_items_average_to_the_metrics(
    config_of: Configure, make_model: Make, random_ids: Callable[..., Tensor]
) -> None:
    model, ids = make_model(config_of("plt", num_loops=2, window=4)), random_ids(4, 12)
    targets = ids.numpy().copy()
    found = diagnose(model, EvaluationSet(ids.numpy(), targets), sequences=4, batch_size=3)
    for name in ("attention_kl", "global_share", "head_rank"):
        by_layer = [v.value for v in found.values if v.name == name and v.loop == 2 and v.layer is not None]
        assert np.mean(by_layer) == pytest.approx(found.metrics[f"loops/2/{name}"])
    maps = {(v.layer, v.head) for v in found.values if v.name == "global_share" and v.head is not None}
    assert maps == {(layer, head) for layer in range(2) for head in range(4)}
    items = {v.item: v.value for v in found.values if v.item is not None and v.loop == 2}
    assert sorted(items) == [0, 1, 2, 3]
    assert np.mean(list(items.values())) == pytest.approx(found.metrics["loops/2/lens_loss"])
    with torch.inference_mode():
        logits = model(ids[1:2]).logits[0]
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(targets[1]))
    assert items[1] == pytest.approx(float(loss), abs=1e-9)


def test_the_probe_set_is_fixed_and_part_of_the_evaluation_set() -> None:
    rows = probe_rows(100, 8)
    assert rows == probe_rows(100, 8) == sorted(set(rows))
    assert set(rows) <= set(range(100))
    assert rows != list(range(8))
    assert probe_rows(3, 8) == [0, 1, 2]


def test_a_saturated_gate_and_a_slot_without_label_give_finite_numbers(
    config_of: Configure, make_model: Make, random_ids: Callable[..., Tensor]
) -> None:
    model = make_model(config_of("plt", num_loops=3, window=3), dtype=torch.float32)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.plt_gate.bias.fill_(1e4)
    ids = random_ids(2, 9)
    data = EvaluationSet(ids.numpy(), np.full(ids.shape, IGNORED, dtype=np.int64))
    found = diagnose(model, data, sequences=2, batch_size=2)
    assert found.metrics["loops/3/global_share"] == pytest.approx(0.0, abs=1e-6)
    assert np.isfinite([value.value for value in found.values]).all()
    assert not any("lens" in name for name in found.metrics)


def test_effective_rank_of_known_matrices() -> None:
    assert effective_rank(torch.eye(5)).item() == pytest.approx(5.0)
    assert effective_rank(torch.ones(7, 3)).item() == pytest.approx(1.0, abs=1e-5)
    assert effective_rank(torch.zeros(4, 4)).item() == pytest.approx(1.0)
    spread = torch.randn(30, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    singular = np.linalg.svd(spread.numpy(), compute_uv=False)
    shares = singular / singular.sum()
    assert effective_rank(spread).item() == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
