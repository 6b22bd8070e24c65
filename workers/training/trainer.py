"""The training loop, as a generator of metric reports.

    trainer = Trainer(model, dataset, config, seed=0)
    for report in trainer.run(): ...          can be left at any report
    trainer.save(folder)                      between any two steps, and, in another process,
    trainer.restore(folder)                   before run()

A run has up to `REPORTS` reports of the mean loss since the last one, and `config.evaluations` of them, evenly spaced,
also carry held-out metrics; so do those that are asked for by token counts. Which steps report depends on these and on
the number of steps alone. On a CPU a resumed run gives the numbers of the unbroken one, bit for bit. Several workers
that a `Spread` connects do all of this together; their number may change when a run is resumed, and changes no number
beyond rounding.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from workers.config import TrainConfig
from workers.data import Dataset
from workers.data.background import Background
from workers.evaluation.accuracy import evaluate
from workers.models import CheckpointError, LoopedTransformer
from workers.parallel.spread import Spread, Whole
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
        evaluate_at: Sequence[int] = (),
        spread: Spread | None = None,
    ) -> None:
        """`before_step` is called before every step and may wait or save; its time does not count as training.

        `evaluate_at` are token counts at which to report an evaluation too; those after the end are ignored.
        `spread` is how `model` is spread over several workers; None has one train it.
        `started` is when the attempt began, in the clock's seconds; by default now.
        """
        self.model = model
        self.steps = config.steps(dataset.seq_len)
        self.steps_done = 0
        self.training_seconds = 0.0
        """Time spent in steps, without evaluations and waiting."""
        self._dataset, self._config, self._seed = dataset, config, seed
        self._evaluation_set = dataset.evaluation_set()
        self._spread = spread or Whole(model)
        self._ranks = self._spread.ranks
        self._stepper = Stepper(model, config, plan or Plan(), self._spread)
        self._before_step, self._clock = before_step, clock
        self._started = clock() if started is None else started
        self._evaluations = evenly_spaced(self.steps, config.evaluations) | self._steps_at(evaluate_at)
        self._reported_step = 0
        self._loss_since_report = torch.zeros((), device=self._stepper.device)
        self._seconds_since_report = 0.0

    @property
    def tokens_done(self) -> int:
        """Training tokens seen."""
        return self.steps_done * self._tokens_per_step

    @property
    def plan(self) -> Plan:
        """How steps are computed."""
        return self._stepper.plan

    @property
    def micro_batch_size(self) -> int:
        """Sequences per forward pass."""
        return self._stepper.micro_batch_size

    def follow(self, plan: Plan) -> None:
        """Compute as `plan` says from now on."""
        self._stepper.follow(plan)

    def run(self) -> Iterator[MetricReport]:
        """Train to the end of the token budget. Only rank 0's reports have held-out metrics.

        Raises `DivergenceError` at the first report whose loss is NaN or infinite.
        """
        reports = sorted(self._evaluations | evenly_spaced(self.steps, REPORTS))
        make = partial(
            self._dataset.train_batch,
            seed=self._seed,
            batch_size=self._config.batch_size,
            rank=self._ranks.rank,
            world=self._ranks.count,
        )
        with Background(make, self.steps) as batches:
            for step in (each for each in reports if each > self.steps_done):
                self._train_until(step, batches)
                metrics = self._metrics_since_report()
                if step in self._evaluations:
                    metrics |= self._evaluate()
                seconds = self._clock() - self._started
                yield MetricReport(step=step, tokens=self.tokens_done, metrics=metrics, seconds=seconds)

    def whole_model(self) -> LoopedTransformer | None:
        """The model as it is now, to read only; None but on rank 0. All workers call this."""
        return self._spread.whole_model()

    def save(self, folder: Path, notes: Mapping[str, Any] | None = None) -> None:
        """Write a checkpoint, whole or not at all, with `notes` (plain data) for whoever restores it.

        All workers call this; rank 0 writes.
        """
        loss = self._ranks.summed(self._loss_since_report)
        progress = {
            "steps_done": self.steps_done,
            "training_seconds": self.training_seconds,
            "reported_step": self._reported_step,
            "loss_since_report": float(loss).hex(),
            "seconds_since_report": self._seconds_since_report,
        }
        facts = {"run": self._identity(), "plan": self.plan.to_dict(), "progress": progress, "notes": notes or {}}
        save_checkpoint(folder, self._spread, self._stepper.optimizer, facts)

    def restore(self, folder: Path) -> dict[str, Any]:
        """Go on from a checkpoint of the same run, with its plan; gives the notes that were saved with it.

        Raises a `CheckpointError`, and changes nothing, for a folder that holds none, or a damaged one, or one of
        another run or shape.
        """
        try:
            return self._restore(folder)
        except CheckpointError:
            raise
        except (OSError, SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:
            complaint = f"{type(error).__name__}: {error}".splitlines()[0]
            raise CheckpointError(f"{folder} is damaged ({complaint}); start anew, or resume an older one") from error

    def _restore(self, folder: Path) -> dict[str, Any]:
        saved = read_checkpoint(folder)
        refuse_difference(folder, saved["run"], self._identity())
        progress, notes = saved["progress"], dict(saved["notes"])
        loss = torch.tensor(float.fromhex(progress["loss_since_report"]), device=self._stepper.device)
        loss = loss if self._ranks.rank == 0 else torch.zeros_like(loss)  # the parts of all workers add up to it
        counts = (int(progress["steps_done"]), int(progress["reported_step"]))
        seconds = (float(progress["training_seconds"]), float(progress["seconds_since_report"]))
        stepper = Stepper(self.model, self._config, Plan(**saved["plan"]), self._spread)
        load_checkpoint(folder, self._spread, stepper.optimizer)
        self._stepper, self._loss_since_report = stepper, loss
        self.steps_done, self._reported_step = counts
        self.training_seconds, self._seconds_since_report = seconds
        return notes

    def _train_until(self, step: int, batches: Background) -> None:
        """Train up to a step."""
        while self.steps_done < step:
            self._before_step()
            started = self._clock()
            lr = learning_rate(self.steps_done, self.steps, self._config)
            self._loss_since_report += self._stepper.step(batches.take(self.steps_done), lr)
            self.steps_done += 1
            if self.steps_done == step:
                self._loss_since_report.item()  # waits for the device, so that its time counts
            seconds = self._clock() - started
            self._seconds_since_report += seconds
            self.training_seconds += seconds

    def _metrics_since_report(self) -> dict[str, float]:
        """Metrics of the steps done since the last report; the next ones start from here."""
        steps, seconds = self.steps_done - self._reported_step, self._seconds_since_report
        loss = self._ranks.summed(self._loss_since_report).item() / steps
        self._reported_step, self._seconds_since_report = self.steps_done, 0.0
        self._loss_since_report = torch.zeros_like(self._loss_since_report)
        if not math.isfinite(loss):
            raise DivergenceError("train/loss", loss, self.steps_done)
        metrics = {"train/loss": loss, "train/lr": learning_rate(self.steps_done - 1, self.steps, self._config)}
        return metrics | ({"train/tokens_per_second": steps * self._tokens_per_step / seconds} if seconds > 0 else {})

    def _evaluate(self) -> dict[str, float]:
        """Held-out metrics, on rank 0."""
        model = self.whole_model()
        return {} if model is None else evaluate(model, self._evaluation_set, self._stepper.micro_batch_size)

    @property
    def _tokens_per_step(self) -> int:
        return self._config.batch_size * self._dataset.seq_len

    def _steps_at(self, tokens: Sequence[int]) -> set[int]:
        """The first step by which so many tokens have been seen, for each count within the run."""
        steps = {-(-count // self._tokens_per_step) for count in tokens}
        return {step for step in steps if 1 <= step <= self.steps}

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
