"""Learning rate over a run: linear warm-up, then half a cosine (Loshchilov and Hutter 2017, arXiv 1608.03983)."""

import math

from workers.config import TrainConfig


def learning_rate(step: int, steps: int, config: TrainConfig) -> float:
    """Learning rate of step `step`, counted from 0, of `steps`.

    The peak is reached on the last warm-up step, and `min_lr_ratio` of it on the last step of all.
    """
    warmup = round(config.warmup_ratio * steps)
    if step < warmup:
        return config.lr * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - 1 - warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return config.lr * (config.min_lr_ratio + (1 - config.min_lr_ratio) * cosine)
