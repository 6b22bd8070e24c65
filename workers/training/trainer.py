"""The training loop, as a generator of metric reports.

    trainer = Trainer(model, dataset, config, seed=0)
    for report in trainer.run(): ...          can be left at any report
    trainer.save(folder)                      and, in another process, trainer.restore(folder) before run()

A run has up to `REPORTS` reports of the mean loss since the last one, and `config.evaluations` of them, evenly spaced,
also carry held-out metrics. Which steps report depends on the number of steps alone. On a CPU a resumed run gives the
numbers of the unbroken one, bit for bit.
"""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from workers.config import TrainConfig
from workers.data import Batch, Dataset
from workers.evaluation.accuracy import evaluate
from workers.models import LoopedTransformer
from workers.protocol import MetricReport
from workers.training.checkpoint import load_checkpoint, read_checkpoint, refuse_difference, save_checkpoint
from workers.training.divergence import DivergenceError
from workers.training.plan import Plan
from workers.training.schedule import learning_rate
from workers.training.stepper import Stepper

REPORTS = 20
"""Most reports of the training loss per run, besides those with evaluations."""


class Trainer:
    """Trains `model` in place on its own device."""

    def __init__(
        self,
        model: LoopedTransformer,
        dataset: Dataset,
        config: TrainConfig,
        *,
        seed: int,
        plan: Plan | None = None,
        before_step: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
        started: float | None = None,
    ) -> None:
        """`before_step` is called before every step and may wait; its time does not count as training.

        `started` is when the attempt began, in the clock's seconds; by default now.
        """
        self.model = model
        self.steps = config.steps(dataset.seq_len)
        self.steps_done = 0
        self.training_seconds = 0.0
        """Time spent in steps, without evaluations and waiting."""
        self._dataset, self._config, self._seed = dataset, config, seed
        self._evaluation_set = dataset.evaluation_set()
        self._stepper = Stepper(model, config, plan or Plan())
        self._before_step, self._clock = before_step, clock
        self._started = clock() if started is None else started

    @property
    def tokens_done(self) -> int:
        """Training tokens seen."""
        return self.steps_done * self._config.batch_size * self._dataset.seq_len

    def run(self) -> Iterator[MetricReport]:
        """Train to the end of the token budget.

        Raises `DivergenceError` at the first report whose loss is NaN or infinite.
        """
        evaluations = evenly_spaced(self.steps, self._config.evaluations)
        reports = sorted(evaluations | evenly_spaced(self.steps, REPORTS))
        for step in (each for each in reports if each > self.steps_done):
            metrics = self._train_until(step)
            if step in evaluations:
                batch_size = self._config.micro_batch_size or self._config.batch_size
                metrics |= evaluate(self.model, self._evaluation_set, batch_size)
            seconds = self._clock() - self._started
            yield MetricReport(step=step, tokens=self.tokens_done, metrics=metrics, seconds=seconds)

    def save(self, folder: Path) -> None:
        """Write a checkpoint, whole or not at all. Call it at a report."""
        progress = {"steps_done": self.steps_done, "training_seconds": self.training_seconds}
        plan = self._stepper.plan.to_dict()
        save_checkpoint(
            folder, self.model, self._stepper.optimizer, {"run": self._identity(), "plan": plan, "progress": progress}
        )

    def restore(self, folder: Path) -> None:
        """Go on from a checkpoint of the same run, with its plan.

        Raises a `CheckpointError`, and changes nothing, for a folder that holds none, or one of another run or shape.
        """
        saved = read_checkpoint(folder)
        refuse_difference(folder, saved["run"], self._identity())
        stepper = Stepper(self.model, self._config, Plan(**saved["plan"]))
        load_checkpoint(folder, self.model, stepper.optimizer)
        self._stepper = stepper
        self.steps_done = saved["progress"]["steps_done"]
        self.training_seconds = saved["progress"]["training_seconds"]

    def _train_until(self, step: int) -> dict[str, float]:
        """Train up to a step; the metrics of the steps done."""
        steps, tokens = step - self.steps_done, self.tokens_done
        total = torch.zeros((), device=self._stepper.device)
        lr, seconds = 0.0, 0.0
        while self.steps_done < step:
            self._before_step()
            started = self._clock()
            lr = learning_rate(self.steps_done, self.steps, self._config)
            total += self._stepper.step(self._batch(), lr)
            self.steps_done += 1
            if self.steps_done == step:
                loss = total.item() / steps
            seconds += self._clock() - started
        self.training_seconds += seconds
        if not math.isfinite(loss):
            raise DivergenceError("train/loss", loss, step)
        metrics = {"train/loss": loss, "train/lr": lr}
        return metrics | ({"train/tokens_per_second": (self.tokens_done - tokens) / seconds} if seconds > 0 else {})

    def _batch(self) -> Batch:
        return self._dataset.train_batch(self.steps_done, seed=self._seed, batch_size=self._config.batch_size)

    def _identity(self) -> dict[str, Any]:
        """What a run is: a checkpoint of another one is not resumed."""
        return {
            "seed": self._seed,
            "model": self.model.config.to_dict(),
            "train": self._config.to_dict(),
            "data": dict(self._dataset.info()),
        }


def evenly_spaced(steps: int, count: int) -> set[int]:
    """At most `count` steps from 1 to `steps`, the last one among them."""
    return {-(-steps * index // count) for index in range(1, count + 1)}
