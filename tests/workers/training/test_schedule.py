"""The learning rate of every step equals that of PyTorch's own schedulers."""

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from workers.config import TrainConfig
from workers.training.schedule import learning_rate


def reference(steps: int, warmup: int, config: TrainConfig) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=config.lr)
    rise = LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
    fall = CosineAnnealingLR(optimizer, T_max=steps - 1 - warmup, eta_min=config.lr * config.min_lr_ratio)
    schedule = SequentialLR(optimizer, [rise, fall], milestones=[warmup])
    rates = []
    for _ in range(steps):
        rates.append(float(schedule.get_last_lr()[0]))
        optimizer.step()
        schedule.step()
    return rates


@pytest.mark.parametrize(("steps", "warmup_ratio"), [(100, 0.05), (40, 0.5), (1000, 0.01)])
def test_warm_up_and_cosine_are_those_of_pytorch(steps: int, warmup_ratio: float) -> None:
    config = TrainConfig(lr=3e-3, min_lr_ratio=0.1, warmup_ratio=warmup_ratio)
    rates = [learning_rate(step, steps, config) for step in range(steps)]
    assert rates == pytest.approx(reference(steps, round(warmup_ratio * steps), config), rel=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 3, 1000])
def test_the_last_step_has_the_lowest_rate(steps: int) -> None:
    config = TrainConfig(lr=1.0, min_lr_ratio=0.25, warmup_ratio=0.0)
    rates = [learning_rate(step, steps, config) for step in range(steps)]
    assert rates[0] == 1.0
    assert steps == 1 or rates[-1] == pytest.approx(0.25)
    assert rates == sorted(rates, reverse=True)
