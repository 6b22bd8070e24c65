"""The training loop, as a generator of metric reports.

    trainer = Trainer(model, dataset, config, seed=0)
    for report in trainer.run(): ...          can be left at any report
    trainer.save(folder)                      and, in another process, trainer.restore(folder) before run()

A run has about `REPORTS` reports of the mean loss since the last one, and `config.evaluations` of them, evenly spaced, also
carry held-out metrics. Which steps report depends on the number of steps alone. On a CPU a resumed run gives the numbers
of the unbroken one, bit for bit.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workers.config import TrainConfig
from workers.data import Dataset
from workers.evaluation.accuracy import evaluate
from workers.models import CheckpointError, LoopedTransformer
from workers.protocol import MetricReport
from workers.training.checkpoint import load_checkpoint, save_checkpoint
from workers.training.diverged import Diverged
from workers.training.plan import Plan
from workers.training.schedule import learning_rate
from workers.training.stepper import Stepper

REPORTS = 20
"""Reports of the training loss per run, at most, besides evaluations."""


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
    ) -> None:
        """`before_step` is called before every step and may wait; its time does not count as training."""
        self.model = model
        self.steps = config.steps(dataset.seq_len)
        self.steps_done = 0
        self.training_seconds = 0.0
        """Time spent in steps, without evaluations and waiting."""
        self._dataset, self._config, self._seed = dataset, config, seed
        self._evaluation_set = dataset.evaluation_set()
        self._stepper = Stepper(model, config, plan or Plan())
        self._before_step, self._clock, self._started = before_step, clock, clock()
        self._loss_sum = self._reported_seconds = 0.0
        self._reported_steps = 0

    @property
    def tokens_done(self) -> int:
        """Training tokens seen."""
        return self.steps_done * self._config.batch_size * self._dataset.seq_len

    def run(self) -> Iterator[MetricReport]:
        """Train to the end of the token budget.

        Raises `Diverged` at the first report whose loss is NaN or infinite.
        """
        evaluations = evaluation_steps(self.steps, self._config.evaluations)
        reports = evaluations | evaluation_steps(self.steps, min(REPORTS, self.steps))
        while self.steps_done < self.steps:
            next_report = min(step for step in reports if step > self.steps_done)
            metrics = self._train_until(next_report)
            if next_report in evaluations:
                metrics |= evaluate(self.model, self._evaluation_set, self._evaluation_batch)
            yield MetricReport(
                step=self.steps_done,
                tokens=self.tokens_done,
                metrics=metrics,
                seconds=self._clock() - self._started,
            )
