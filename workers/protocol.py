"""What crosses the border between the driver and a worker: plain, frozen data, both ways.

The driver sends a `BenchmarkRequest` (latency and KV memory of one architecture, weights random) or a `TrialRequest`
(train and evaluate one configuration with one seed). The worker answers with any number of `MetricReport`s and then
exactly one `TrialOutcome`. A worker never raises across the border: whatever goes wrong is a `Failure` in the outcome.
An execution that was asked to stop ends without an outcome: nobody waits for one. One that was asked to leave saves a
state first, and its outcome says so.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Literal, NamedTuple

from workers.config import BenchmarkConfig, DataConfig, ModelConfig, TrainConfig

Direction = Literal["minimize", "maximize"]
"""Which way a metric is better."""


class FailureReason(StrEnum):
    """Why an attempt gave no result."""

    DIVERGED = "diverged"
    """A loss or metric became NaN or infinite."""
    INVALID = "invalid"
    """The data cannot be had or does not fit the request; trying again gives the same."""
    GPU_OOM = "gpu_oom"
    HOST_OOM = "host_oom"
    EXCEPTION = "exception"
    """The code raised; the traceback is kept."""
    DRIVER_LOST = "driver_lost"
    """The driver was killed; the attempt may have been fine."""
    WORKER_LOST = "worker_lost"
    """The worker process or its node died."""
    PEER_LOST = "peer_lost"
    """One of several workers could not reach the others any more; why is not known."""
    PREEMPTED = "preempted"
    """Its machine is being taken away; the message says whether there was time to save a state."""
    DEVICE = "device"
    """The device is broken or unusable, whatever runs on it."""
    TIMEOUT = "timeout"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why an attempt failed, for people (`message`, one line) and for debugging (`traceback`)."""

    reason: FailureReason
    message: str
    traceback: str = ""


@dataclass(frozen=True, kw_only=True)
class BenchmarkRequest:
    """Measure decode latency and KV memory of one architecture, alone on the device."""

    attempt_id: str
    """Names this execution, unique in the study."""
    model: ModelConfig
    """At the size that is to be deployed."""
    benchmark: BenchmarkConfig
    seed: int = 0
    """Of the random weights and tokens."""
    threads: int | None = None
    """CPU threads for the measurement; None means every core that the process may use."""


Parallel = Literal["ddp", "fsdp"]
"""How several workers share a model: each has all of it, or each a part."""


@dataclass(frozen=True, kw_only=True)
class Gang:
    """The workers that train one trial together, all or none of them."""

    workers: int
    parallel: Parallel = "ddp"
    rank: int = 0
    """The worker that a request is sent to; a backend sends each its own."""
    host: str = "127.0.0.1"
    """Address of rank 0's machine, as the other workers reach it."""


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """Train and evaluate one configuration with one seed."""

    attempt_id: str
    """Names this execution, unique in the study: trial number and attempt number."""
    model: ModelConfig
    data: DataConfig
    train: TrainConfig
    seed: int
    data_folder: str
    """Where token shards are built or found (shared by all trials and studies of this home)."""
    folder: str
    """This attempt's own; `workers.attempt_folder.AttemptFolder` names what is in it."""
    store: str | None = None
    """Address, as fsspec takes it, below which this trial's attempts keep copies of their checkpoints under the names
    of their folders (`workers.stored_copies`); None keeps none."""
    initial: str | None = None
    """A checkpoint folder, in any layout, whose weights training starts from; None draws them from the seed."""
    resume_from: tuple[str, ...] = ()
    """Folders of earlier attempts, newest first: training goes on from the first that holds a usable state, and the
    reports that led there are repeated before it does."""
    evaluate_at: tuple[int, ...] = ()
    """Training-token counts at which an evaluation is reported too, rounded up to whole steps."""
    halvings: int = 0
    """How often the micro-batch is halved, to need less memory; the batch of a step stays the same."""
    best_by: tuple[str, Direction] | None = None
    """The evaluated metric, and its direction, that makes a model worth keeping beside the final one."""
    threads: int | None = None
    """CPU threads for training; None leaves the process as it is."""
    gang: Gang | None = None
    """Several workers, of which the one that gets this is `gang.rank`; None trains with one. Their number changes
    results no more than rounding does. Only rank 0 reports; the others' outcomes say only how they ended."""
    probe_sequences: int = 0
    """Held-out sequences on which the trained model's loops are diagnosed; 0 leaves that out."""


Request = BenchmarkRequest | TrialRequest


@dataclass(frozen=True, kw_only=True)
class MetricReport:
    """Metrics at one point of training."""

    step: int
    """Optimizer steps done."""
    tokens: int
    """Training tokens seen."""
    metrics: Mapping[str, float]
    """Name to value, for instance `train/loss` in nats per token."""
    seconds: float
    """Wall time since the attempt began."""


class LoopValue(NamedTuple):
    """One number of the loop diagnostics (`workers.evaluation.diagnostics`)."""

    name: str
    """What is measured, for instance `step_size`."""
    loop: int
    """From 1."""
    layer: int | None
    """From 0; None where it is a mean over layers, or has none."""
    head: int | None
    """From 0; None likewise."""
    item: int | None
    """Position in the evaluation set; None for a mean over the probe set."""
    value: float


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """How an attempt ended. `failure` is None exactly when the metrics are final and finite."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    """Final metrics; a failed attempt keeps the last known ones."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Plain facts: hardware, package versions, precision chosen, parameter, FLOP and token counts."""
    failure: Failure | None = None
    seconds: float = 0.0
    """Wall time of the attempt."""
    loops: tuple[LoopValue, ...] = ()
    """The table of loop diagnostics; empty when none were asked for."""


class Ask(IntEnum):
    """What is asked of an execution between two training steps."""

    GO_ON = 0
    STOP = 1
    """End the stream without an outcome."""
    LEAVE = 2
    """The machine is being taken away: save a state and end as `FailureReason.PREEMPTED`."""


ShouldStop = Callable[[], int]
"""Asked before every training step; an `Ask`, or simply whether to stop."""

Execute = Callable[[Request, ShouldStop], Iterator[MetricReport | TrialOutcome]]
"""Carries out one request: reports, then exactly one outcome, last."""


def never_stop() -> bool:
    """The `ShouldStop` of an execution that is never stopped."""
    return False
