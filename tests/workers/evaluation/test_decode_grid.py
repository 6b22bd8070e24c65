"""The decode grid: which settings it measures, what it computes from a given clock, and each step's floor."""

from collections.abc import Callable
from itertools import chain, cycle
from typing import Any

import pytest
import torch

from workers.config import ModelConfig, variant_knobs
from workers.config.counts import kv_bytes_per_sequence, parameter_count
from workers.evaluation import decode_grid
from workers.evaluation.decode_grid import PLAIN, DecodeGrid, measure_grid

SHAPE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def grid(**changes: Any) -> DecodeGrid:
    fields: dict[str, Any] = {"shape": SHAPE, "contexts": (24,), "steps": 4, "precision": "float32", **changes}
    return DecodeGrid(**fields)


def ticking(first: list[float], seconds: list[float]) -> Callable[[], float]:
    """A clock by which every second reading comes so many seconds after the one before: `first`, then over and over."""
    readings = chain.from_iterable((0.0, one) for one in chain(first, cycle(seconds)))
    return lambda: next(readings)


def test_plain_is_measured_once_and_every_variant_at_every_loop_count() -> None:
    assert list(grid(variants=("plt", "loop"), loops=(1, 2, 3)).settings()) == [
        PLAIN,
        "plt R=2",
        "plt R=3",
        "loop R=2",
        "loop R=3",
    ]
    assert list(grid(loops=(1,)).settings()) == [PLAIN]


def test_every_preset_can_be_measured_and_carries_the_bytes_of_the_formula() -> None:
    variants = ("plt", "loop", "loop+clp", "loop+clp+share", "loopcoder-v2", "iquest-loop")
    found = measure_grid(grid(variants=variants, loops=(2,), batch_sizes=(1, 3)))
    assert [point.setting for point in found.points] == [PLAIN, *(f"{name} R=2" for name in variants)] * 2
    for point in found.points:
        name = point.setting.removesuffix(" R=2")
        config = ModelConfig(**SHAPE, **variant_knobs("vanilla" if point.setting == PLAIN else name))
        assert point.kv_bytes_per_sequence == kv_bytes_per_sequence(config, 24, 4)
    assert found.parameters == parameter_count(ModelConfig(**SHAPE))


def test_times_are_medians_and_ratios_are_of_neighbours() -> None:
    """Two settings take turns, forwards and backwards: plain takes 1, 1, 3, 3, ... and the other 2, 2, 6, 6 ..."""
    order = [1.0, 2.0, 2.0, 1.0, 3.0, 6.0, 6.0, 3.0]
    found = measure_grid(grid(variants=("plt",), loops=(2,), batch_sizes=(2,)), clock=ticking([0.5, 0.7], order))
    plain, looped = found.points
    assert (plain.prefill_ms, looped.prefill_ms) == (500.0, 700.0)
    assert (plain.ms_p50, looped.ms_p50) == (2000.0, 4000.0)  # of 3, 1, 1, 3 after the warm-up, and of their doubles
    assert (plain.ms_p95, looped.ms_p95) == (3000.0, 6000.0)
    assert (plain.over_plain, looped.over_plain) == (1.0, 2.0)


@pytest.mark.parametrize(("bandwidth", "rate", "bound_by"), [(1e6, 1e15, "bandwidth"), (1e15, 1e6, "matrix rate")])
def test_the_floor_counts_weights_once_per_pass_and_products_of_every_row(
    bandwidth: float, rate: float, bound_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_grid, "read_bandwidth", lambda: bandwidth)
    monkeypatch.setattr(decode_grid, "matrix_rate", lambda _dtype: rate)
    found = measure_grid(grid(variants=("loop+clp+share", "loop"), loops=(3,), batch_sizes=(2,)))
    d, ffn, vocab, layers, kv_width = 32, 48, 40, 2, 16
    layer = layers * (2 * d * d + 2 * d * kv_width + 3 * d * ffn)
    head = vocab * d
    passes = {PLAIN: 1, "loop+clp+share R=3": 1, "loop R=3": 3}
    loops = {PLAIN: 1, "loop+clp+share R=3": 3, "loop R=3": 3}
    carried = {PLAIN: 0, "loop+clp+share R=3": 2 * d * 4, "loop R=3": 0}
    for point in found.points:
        name = point.setting
        read = 4 * (passes[name] * layer + head) + 2 * (point.kv_bytes_per_sequence + carried[name])
        floor = read / bandwidth if bound_by == "bandwidth" else 2 * 2 * (loops[name] * layer + head) / rate
        assert point.floor_ms == pytest.approx(1000 * floor)
        assert point.bound_by == bound_by


def test_weights_are_shared_where_tensors_are_the_same() -> None:
    settings = grid(variants=("plt", "loop", "loopcoder-v2"), loops=(2, 3)).settings()
    models = decode_grid._models(settings, "cpu", torch.float32)
    owners = {name: model.model.embed_tokens.weight.data_ptr() for name, model in models.items()}
    assert len(set(owners.values())) == 2
    assert owners[PLAIN] == owners["plt R=2"] == owners["plt R=3"] == owners["loop R=3"] != owners["loopcoder-v2 R=2"]
    packed = decode_grid._weights(models, 1)
    assert packed[PLAIN] is packed["plt R=3"]
    assert packed["plt R=2"] is not packed["loopcoder-v2 R=2"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loops": ()}, "loops is ()"),
        ({"batch_sizes": (0,)}, r"batch_sizes is \(0,\)"),
        ({"steps": 0}, "steps is 0"),
        ({"precision": "float16"}, "precision is 'float16'"),
        ({"variants": ("ptl",)}, "variant is 'ptl'; known variants are vanilla"),
        ({"shape": {**SHAPE, "num_attention_heads": 5}}, "5"),
    ],
)
def test_what_cannot_be_measured_is_refused_first(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("()", r"\(\)")):
        grid(**changes)
