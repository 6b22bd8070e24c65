"""`auto` follows the clock: what is timed, from which length of run, and which margin decides."""

from collections.abc import Callable

import pytest
import torch

from workers.config import ModelConfig, TrainConfig
from workers.data import Dataset
from workers.models import LoopedTransformer
from workers.training import Plan, choose_plan


def scripted(durations: list[float]) -> Callable[[], float]:
    """A clock on which the n-th timed step takes `durations[n]` seconds."""
    times = [0.0]
    for duration in durations:
        times += [times[-1], times[-1] + duration]
    return iter(times[1:]).__next__


def choose(model: LoopedTransformer, dataset: Dataset, durations: list[float], **settings: object) -> Plan:
    config = TrainConfig(tokens=100 * 8 * 16, batch_size=8, **settings)  # type: ignore[arg-type]
    return choose_plan(model, dataset, config, seed=0, clock=scripted(durations))


def test_what_is_set_is_not_measured(model: LoopedTransformer, dataset: Dataset) -> None:
    plan = choose(model, dataset, [], precision="bfloat16", compile="on")
    assert (plan.precision, plan.compile, plan.step_seconds) == ("bfloat16", True, {})


def test_a_short_run_tries_nothing(model: LoopedTransformer, dataset: Dataset) -> None:
    plan = choose(model, dataset, [9.0, 0.2, 0.1, 0.15])  # 100 steps of 0.1 s, the first step being slow
    assert (plan.precision, plan.compile) == ("float32", False)
    assert plan.step_seconds == pytest.approx({"float32": 0.1})
    assert "10.0 s is too short" in plan.reasons["precision"]
    assert "10.0 s is too short" in plan.reasons["compile"]


@pytest.mark.parametrize(("bfloat16", "chosen"), [(0.9, "float32"), (0.6, "bfloat16")])
def test_bfloat16_must_be_clearly_faster(
    model: LoopedTransformer, dataset: Dataset, bfloat16: float, chosen: str
) -> None:
    plan = choose(model, dataset, [1.0, 1.0, 1.0, 9.0, *[bfloat16] * 4], compile="off")
    assert plan.precision == chosen
    assert plan.step_seconds == pytest.approx({"float32": 1.0, "bfloat16": bfloat16})


def test_a_set_precision_is_timed_for_compilation_alone(model: LoopedTransformer, dataset: Dataset) -> None:
    plan = choose(model, dataset, [1.0, 1.0, 1.0], precision="bfloat16")
    assert (plan.precision, plan.compile) == ("bfloat16", False)
    assert plan.step_seconds == pytest.approx({"bfloat16": 1.0})


@pytest.mark.slow
@pytest.mark.parametrize(("compilation", "compiled", "chosen"), [(50.0, 1.0, True), (150.0, 1.0, False)])
def test_compilation_is_counted_against_the_steps_it_saves(
    plain_config: ModelConfig, dataset: Dataset, compilation: float, compiled: float, chosen: bool
) -> None:
    durations = [2.0, 2.0, compilation, compiled, compiled, compiled]  # 200 s eager, 100 s compiled
    plan = choose(LoopedTransformer(plain_config, seed=0), dataset, durations, precision="float32")
    assert plan.compile is chosen
    assert plan.step_seconds == pytest.approx({"float32": 2.0, "compilation": compilation, "compiled": compiled})


def test_measuring_leaves_the_model_alone(model: LoopedTransformer, dataset: Dataset) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    choose(model, dataset, [1.0] * 8, compile="off")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
