"""Trains, evaluates and keeps one configuration with one seed, sharing the device with other trials.

A waiting benchmark goes first between two steps. Asked to stop, a trial raises `Stopped` before its next step; asked to
leave, it saves a state and raises `Preempted`. One that goes on from a state first repeats the reports that led there:
nobody may have heard them, because a worker whose driver was killed, or whose node was lost, trains on for a while.
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
from workers.parallel import Ranks, Replicated, Sharded, Spread, Whole, joined
from workers.parallel.giving_way import give_way, take_together
from workers.protocol import Ask, MetricReport, ShouldStop, TrialRequest
from workers.training import DivergenceError, Plan, Trainer, choose_plan, halved_micro_batch, untimed_plan


class Stopped(Exception):  # noqa: N818 - it is no error
    """Whoever waited for the trial does not any more."""


class Preempted(Exception):  # noqa: N818 - it is no error
    """The machine is being taken away; the text says what was saved."""


def train(
    request: TrialRequest, known: Known, should_stop: ShouldStop, clock: Callable[[], float], started: float
) -> Iterator[MetricReport]:
    """Report metrics, growing `known`, and save the final model; `started` is when the attempt began.

    Of several workers only rank 0 reports.
    """
    with (
        joined(request.gang, request.folder, store=request.store) as ranks,
        DeviceLock(device_name()).shared(lambda hold: take_together(hold, ranks)) as lock,
    ):
        dataset = _prepared(request, ranks)
        _refuse_misfit(request.model, dataset)
        known.info["data"] = dict(dataset.info())
        if request.gang is not None:
            known.info["gang"] = {"workers": request.gang.workers, "parallel": request.gang.parallel}
        code = CodeReferences(request.data, Path(request.data_folder))
        known.metrics["model/parameters"] = parameter_count(request.model)
        run = _Run(request, known, dataset, lock, should_stop, clock, started, ranks)
        run.prepare()
        if ranks.rank == 0:
            yield from tuple(run.keeper.reports)
        for report in run.trainer.run():
            known.metrics |= {**report.metrics, **run.spent()}
            if ranks.rank == 0:
                yield report
            refuse_non_finite(report.metrics, report.step)
            run.keeper.at_report(report)
        if request.probe_sequences > 0:
            run.before_step()
        model = run.trainer.whole_model()
        if model is not None:
            known.metrics |= code.score(model, request.train.batch_size)
            refuse_non_finite(known.metrics)
            run.diagnose(model)
            run.keeper.finish(model)


def _prepared(request: TrialRequest, ranks: Ranks) -> Dataset:
    """The data, which rank 0 makes if nobody has yet."""
    if ranks.rank == 0:
        dataset = prepare(request.data, Path(request.data_folder))
        ranks.any_of(True)
        return dataset
    ranks.any_of(True)
    return prepare(request.data, Path(request.data_folder))


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
        ranks: Ranks,
    ) -> None:
        self._request, self._known, self._dataset = request, known, dataset
        self._lock, self._should_stop, self._clock, self._ranks = lock, should_stop, clock, ranks
        spread = _spread(request, ranks)
        self.trainer = Trainer(
            spread.model,
            dataset,
            request.train,
            seed=request.seed,
            before_step=self.before_step,
            clock=clock,
            started=started,
            evaluate_at=request.evaluate_at,
            spread=spread,
        )
        self.keeper = Keeper(request, self.trainer, known, clock, ranks)

    def prepare(self) -> None:
        """Go on from an earlier attempt's state, by its plan, or choose one; a plan for other micro-batches is void."""
        size = halved_micro_batch(self._request.train, self._request.halvings, self._ranks.count)
        resumed = self.keeper.resume()
        if not resumed or self.trainer.plan.micro_batch_size != size or not self._can_follow(self.trainer.plan):
            chosen = self._choose(size).to_dict() if self._ranks.rank == 0 else None
            self.trainer.follow(Plan(**self._ranks.first(chosen)))
        self._known.info["plan"] = self.trainer.plan.to_dict()

    def _can_follow(self, plan: Plan) -> bool:
        return not (plan.compile and self._shares_parts)

    @property
    def _shares_parts(self) -> bool:
        return self._request.gang is not None and self._request.gang.parallel == "fsdp" and self._ranks.count > 1

    def _choose(self, micro_batch_size: int | None) -> Plan:
        """Timed on rank 0 with its own rows; a model that is shared in parts is not timed, because it may not fit."""
        config = self._request.train
        if self._shares_parts:
            return untimed_plan(config, "workers that have a part of the model each are not timed", micro_batch_size)
        return choose_plan(
            self.trainer.model,
            self._dataset,
            config,
            seed=self._request.seed,
            clock=self._clock,
            micro_batch_size=micro_batch_size,
            world=self._ranks.count,
        )

    def diagnose(self, model: LoopedTransformer) -> None:
        """What each loop does and costs in the trained model, if the request asks for it."""
        if self._request.probe_sequences == 0:
            return
        began = self._clock()
        found = diagnose(
            model,
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

    def before_step(self) -> None:
        """Stop, leave, save a state or give way to a benchmark if any worker is to: all of them do."""
        asked = self._should_stop()
        stop, leave, save, wanted = self._ranks.any_of(
            asked == Ask.STOP, asked == Ask.LEAVE, self.keeper.is_overdue(), self._lock.is_wanted()
        )
        if stop:
            raise Stopped
        if leave:
            self.keeper.save_state()
            raise Preempted(self._farewell())
        if save:
            self.keeper.save_state()
        if wanted:
            give_way(self._lock, self._ranks)

    def _farewell(self) -> str:
        step = f"step {self.trainer.steps_done} of {self.trainer.steps}"
        saved = self._known.info.get("state", "a state was saved")
        return f"the machine is being taken away; {saved} at {step}"


def _spread(request: TrialRequest, ranks: Ranks) -> Spread:
    """The model with its first weights, spread as the request says."""
    parts = request.gang is not None and request.gang.parallel == "fsdp" and ranks.count > 1
    model = LoopedTransformer(request.model, seed=request.seed, device="cpu" if parts else device())
    if request.initial is not None:
        _take_weights(model, Path(request.initial))
    if parts:
        return Sharded(model, ranks, device())
    return Replicated(model, ranks) if ranks.count > 1 else Whole(model)


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
