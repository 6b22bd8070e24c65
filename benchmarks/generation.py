"""How many examples of every generated task one core makes per second, and what making them costs a training run.

    python -m benchmarks.generation [--seconds 2] [--output FILE]

The first table is one thread that does nothing else, at batch sizes 16 and 256, with default settings at the shortest
round sequence length that holds them. The second trains a small model on p-hop and on addition with batches made in the
background, and with batches that were made beforehand: the ratio of their step times is what generation costs.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from workers.config import DataConfig, ModelConfig, TrainConfig, variant_knobs
from workers.config.task_shapes import TASKS
from workers.data import Batch, Dataset, prepare
from workers.data.background import Background
from workers.models import LoopedTransformer
from workers.training.plan import Plan
from workers.training.stepper import Stepper

LENGTHS = {"phop": 256, "addition": 136, "igsm": 192, "variables": 72, "tracking": 20, "mano": 16, "depo": 56}
STEPS, ROUNDS = 60, 5


def main() -> None:
    parser = argparse.ArgumentParser(description="examples per second of every task")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    results = {
        "machine": platform.processor() or platform.machine(),
        "examples_per_second": {task: speeds(task, given.seconds) for task in TASKS},
        "step_time_ratio": {task: step_time_ratio(task) for task in ("phop", "addition")},
    }
    text = json.dumps(results, indent=1)
    print(text)
    if given.output:
        given.output.write_text(text + "\n", encoding="utf-8")


def dataset_of(task: str) -> Dataset:
    return prepare(DataConfig(corpus=task, seq_len=LENGTHS[task]), Path("unused"))


def speeds(task: str, seconds: float) -> dict[str, float]:
    """Examples per second of CPU time by batch size: what other processes do does not count."""
    found = {}
    for size in (16, 256):
        dataset = dataset_of(task)
        dataset.train_batch(0, seed=0, batch_size=size)
        started, step = time.thread_time(), 0
        while time.thread_time() - started < seconds:
            step += 1
            dataset.train_batch(step, seed=0, batch_size=size)
        found[f"batch {size}"] = round(step * size / (time.thread_time() - started))
    return found


def step_time_ratio(task: str) -> float:
    """Median step time with batches made in the background, over that with batches made beforehand, interleaved."""
    dataset = dataset_of(task)
    model = LoopedTransformer(
        ModelConfig(
            vocab_size=dataset.vocab_size,
            hidden_size=64,
            intermediate_size=168,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=dataset.seq_len,
            **{**variant_knobs("plt"), "window": 8},
        ),
        seed=0,
    )
    stepper = Stepper(model, TrainConfig(batch_size=16), Plan())
    ready = [dataset.train_batch(step, seed=0, batch_size=16) for step in range(STEPS)]
    ratios = []
    for round_ in range(ROUNDS):
        first = (round_ + 1) * STEPS

        def make(step: int, first: int = first) -> Batch:
            return dataset.train_batch(first + step, seed=0, batch_size=16)

        with Background(make, STEPS) as batches:
            made = _time(stepper, batches.take)
        ratios.append(made / _time(stepper, ready.__getitem__))
    return round(median(ratios), 3)


def _time(stepper: Stepper, batch: Callable[[int], Batch]) -> float:
    started = time.perf_counter()
    for step in range(STEPS):
        stepper.step(batch(step), 1e-3).item()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
