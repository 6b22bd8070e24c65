"""The training grid: which settings it measures, and what it computes from a given clock."""

from collections.abc import Callable
from itertools import chain, cycle
from typing import Any

import numpy as np
import pytest
import torch

from workers.config import ModelConfig, variant_knobs
from workers.config.counts import flops_per_token, parameter_count
from workers.data import Batch
from workers.evaluation import train_grid
from workers.evaluation.train_grid import PLAIN, TRAIN, TrainGrid, kept_bytes, measure_training
from workers.models import LoopedTransformer
from workers.training.plan import Plan
from workers.training.stepper import Stepper

SHAPE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def grid(**changes: Any) -> TrainGrid:
    fields: dict[str, Any] = {"shape": SHAPE, "batch_size": 2, "seq_len": 8, "steps": 4, **changes}
    return TrainGrid(**fields)


def ticking(seconds: list[float]) -> Callable[[], float]:
    """A clock by which every second reading comes so many seconds after the one before, over and over."""
    readings = chain.from_iterable((0.0, one) for one in cycle(seconds))
    return lambda: next(readings)


def test_plain_is_measured_once_and_the_window_is_the_asked_one() -> None:
    settings = grid(variants=("plt", "loop"), loops=(1, 2, 3), window=5).settings()
    assert list(settings) == [PLAIN, "plt R=2", "plt R=3", "loop R=2", "loop R=3"]
    assert [config.window for config in settings.values()] == [None, 5, 5, None, None]


def test_times_ratios_and_utilisation_come_from_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two settings take turns, forwards and backwards: plain takes 1, 1, 3, 3, ... and the other 2, 2, 6, 6 ..."""
    monkeypatch.setattr(train_grid, "matrix_rate", lambda _dtype: 1e6)
    order = [1.0, 2.0, 2.0, 1.0, 3.0, 6.0, 6.0, 3.0]
    plain, plt = measure_training(grid(variants=("plt",), loops=(2,)), clock=ticking(order)).points
    assert (plain.ms_p50, plt.ms_p50) == (2000.0, 4000.0)
    assert (plain.over_plain, plt.over_plain) == (1.0, 2.0)
    assert plain.tokens_per_second == 8.0
    config = ModelConfig(**SHAPE, **variant_knobs("plt"))
    assert plt.flop_utilisation == pytest.approx(flops_per_token(config, 8) * 16 / 4.0 / 1e6)


def test_what_is_kept_for_the_backward_pass_is_counted_once() -> None:
    """A head alone keeps its input and the loss's log-probabilities; nothing is counted twice, weights never."""
    config = ModelConfig(**(SHAPE | {"num_hidden_layers": 1}))
    ids = np.zeros((3, 9), dtype=np.int64)
    one, two = (
        kept_bytes(Stepper(LoopedTransformer(config), TRAIN, Plan()), Batch(inputs=part[:, :-1], targets=part[:, 1:]))
        for part in (ids, np.concatenate((ids, ids)))
    )
    assert one > 3 * 8 * (config.vocab_size + config.hidden_size) * 4
    assert 1.8 * one < two <= 2 * one


def test_more_loops_keep_more() -> None:
    points = measure_training(grid(variants=("plt",), loops=(2, 3), steps=1)).points
    kept = [point.kept_bytes for point in points]
    assert kept == sorted(set(kept))


def test_the_measurement_is_plain_and_names_its_machine() -> None:
    found = measure_training(grid(loops=(1,), steps=1, precision="bfloat16")).to_plain()
    assert found["parameters"] == parameter_count(ModelConfig(**SHAPE))
    assert found["machine"]["threads"] == torch.get_num_threads()
    assert found["grid"]["precision"] == "bfloat16"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 0}, "steps is 0; it must be 1 or more"),
        ({"loops": ()}, r"loops is \(\); it must be one or more numbers of 1 or more"),
        ({"precision": "float16"}, "precision is 'float16'; it must be bfloat16 or float32"),
        ({"variants": ("ptl",)}, "variant is 'ptl'; known variants are"),
        ({"window": 0}, "window is 0; it must be 1 or more tokens"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        grid(**changes)
