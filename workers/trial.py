"""Trains, evaluates and keeps one configuration with one seed, sharing the device with other trials.

A waiting benchmark goes first between two steps. Asked to stop, a trial raises `Stopped` before its next step. One that
goes on from a state first repeats the reports that led there: nobody may have heard them, because a worker whose driver
was killed, or whose node was lost, trains on for a while.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from workers.code.references import CodeReferences
from workers.config import ModelConfig
from workers.config.counts import flops_per_token, parameter_count
from workers.data import DataError, Dataset, prepare
from workers.device import device, device_name
from workers.device_lock import DeviceLock, SharedHold
from workers.evaluation.diagnostics import diagnose
from workers.keeper import Keeper
from workers.known import Known
from workers.models import LoopedTransformer
from workers.protocol import MetricReport, ShouldStop, TrialRequest
from workers.training import DivergenceError, Trainer, choose_plan, halved_micro_batch


class Stopped(Exception):  # noqa: N818 - it is no error
    """Whoever waited for the trial does not any more."""


def train(
    request: TrialRequest, known: Known, should_stop: ShouldStop, clock: Callable[[], float], started: float
) -> Iterator[MetricReport]:
    """Report metrics, growing `known`, and save the final model; `started` is when the attempt began."""
    with DeviceLock(device_name()).shared() as lock:
        dataset = prepare(request.data, Path(request.data_folder))
        _refuse_misfit(request.model, dataset)
        known.info["data"] = dict(dataset.info())
        code = CodeReferences(request.data, Path(request.data_folder))
        known.metrics["model/parameters"] = parameter_count(request.model)
        run = _Run(request, known, dataset, lock, should_stop, clock, started)
        run.prepare()
        yield from tuple(run.keeper.reports)
        for report in run.trainer.run():
            known.metrics |= {**report.metrics, **run.spent()}
            yield report
            refuse_non_finite(report.metrics, report.step)
            run.keeper.at_report(report)
        known.metrics |= code.score(run.trainer.model, request.train.batch_size)
        refuse_non_finite(known.metrics)
        run.diagnose()
        run.keeper.finish()


class _Run:
    """The trainer and the keeper of one trial, and what happens between two steps."""

    def __init__(
        self,
        request: TrialRequest,
        known: Known,
        dataset: Dataset,
        lock: SharedHold,
        should_stop: ShouldStop,
        clock: Callable[[], float],
        started: float,
    ) -> None:
        self._request, self._known, self._dataset = request, known, dataset
        self._lock, self._should_stop, self._clock = lock, should_stop, clock
        self.trainer = Trainer(
            LoopedTransformer(request.model, seed=request.seed, device=device()),
            dataset,
            request.train,
            seed=request.seed,
            before_step=self._before_step,
            clock=clock,
            started=started,
            evaluate_at=request.evaluate_at,
        )
        if request.initial is not None:
            _take_weights(self.trainer.model, Path(request.initial))
        self.keeper = Keeper(request, self.trainer, known, clock)

    def prepare(self) -> None:
        """Go on from an earlier attempt's state, by its plan, or choose one; a plan for other micro-batches is void."""
        micro_batch_size = halved_micro_batch(self._request.train, self._request.halvings)
        if not self.keeper.resume() or self.trainer.plan.micro_batch_size != micro_batch_size:
            self.trainer.follow(
                choose_plan(
                    self.trainer.model,
                    self._dataset,
                    self._request.train,
                    seed=self._request.seed,
                    clock=self._clock,
                    micro_batch_size=micro_batch_size,
                )
            )
        self._known.info["plan"] = self.trainer.plan.to_dict()

    def diagnose(self) -> None:
        """What each loop does and costs in the trained model, if the request asks for it."""
        if self._request.probe_sequences == 0:
            return
        self._before_step()
        began = self._clock()
        found = diagnose(
            self.trainer.model,
            self._dataset.evaluation_set(),
            sequences=self._request.probe_sequences,
            batch_size=self.trainer.micro_batch_size,
        )
        self._known.metrics |= found.metrics
        self._known.loops = found.values
        self._known.info["diagnostics"] = {"sequences": found.sequences, "seconds": self._clock() - began}

    def spent(self) -> dict[str, float]:
        """What training has cost so far, over all attempts that it goes on from."""
        tokens = self.trainer.tokens_done
        flops = flops_per_token(self._request.model, self._request.data.seq_len) * tokens
        return {"train/tokens": tokens, "train/flops": flops, "train/seconds": self.trainer.training_seconds}

    def _before_step(self) -> None:
        if self._should_stop():
            raise Stopped
        self.keeper.between_steps()
        self._lock.yield_to_exclusive()


def refuse_non_finite(metrics: Mapping[str, float], step: int | None = None) -> None:
    """Raise a `DivergenceError` for the first metric that is NaN or infinite."""
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise DivergenceError(name, value, step)


def _take_weights(model: LoopedTransformer, folder: Path) -> None:
    from workers.interop.errors import InteropError
    from workers.interop.initial_weights import take_weights

    try:
        taken = take_weights(model, folder)
    except InteropError as error:
        raise DataError(str(error)) from error
    print(f"weights from {folder}: {taken}")


def _refuse_misfit(model: ModelConfig, dataset: Dataset) -> None:
    if model.vocab_size != dataset.vocab_size:
        raise DataError(
            f"vocab_size is {model.vocab_size} and the data has {dataset.vocab_size} token ids; make them equal"
        )
    if model.max_position_embeddings < dataset.seq_len:
        raise DataError(
            f"seq_len is {dataset.seq_len} and max_position_embeddings is {model.max_position_embeddings}; "
            "raise max_position_embeddings"
        )
