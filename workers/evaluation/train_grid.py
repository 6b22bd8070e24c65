"""Training speed and memory of several loop settings of one shape, each beside its physical floor.

Settings are the plain transformer (R = 1) and every asked-for variant at every asked-for loop count above 1, with
random weights and tokens. All take whole optimizer steps in turn (forward, backward, clipping, fused AdamW), so that
whatever else the machine does hits all of them alike: quote the ratios before the milliseconds.

The floor of a step is its matrix products, those of all R loops, at the measured matrix rate; the share of the floor is
what is called model FLOP utilisation (MFU; PaLM, arXiv 2204.02311).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from workers.config import ModelConfig, TrainConfig, variant_knobs
from workers.config.counts import flops_per_token, parameter_count
from workers.data import Batch
from workers.evaluation.decode_timing import Clock
from workers.evaluation.hardware import hardware, matrix_rate
from workers.models import LoopedTransformer
from workers.training.plan import Plan, StepPrecision
from workers.training.stepper import Stepper

PLAIN = "plain R=1"
SHAPES: Mapping[str, Mapping[str, int]] = {
    "3M": {
        "vocab_size": 1024,
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 6,
    },
    "34M": {
        "vocab_size": 8192,
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
    },
}
WARM_UP_STEPS = 2
TRAIN = TrainConfig(batch_size=2**20)
"""Whole batches at once, whatever their size."""
_DTYPES: Mapping[StepPrecision, torch.dtype] = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True, kw_only=True)
class TrainGrid:
    """What to measure."""

    shape: Mapping[str, Any]
    """Sizes of the model, without loop knobs."""
    variants: tuple[str, ...] = ("plt", "loop+clp+share")
    loops: tuple[int, ...] = (1, 2)
    """Loop counts; 1 is always measured, once."""
    batch_size: int = 4
    """Sequences per step."""
    seq_len: int = 512
    window: int | None = None
    """Of the variants that have one, instead of the preset's."""
    steps: int = 10
    """Timed steps of each setting."""
    precision: StepPrecision = "float32"
    compile: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be measured, before anything is built."""
        for name in ("batch_size", "seq_len", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if not self.loops or min(self.loops) < 1:
            raise ValueError(f"loops is {self.loops!r}; it must be one or more numbers of 1 or more")
        if self.precision not in _DTYPES:
            raise ValueError(f"precision is {self.precision!r}; it must be bfloat16 or float32")
        self.settings()

    def settings(self) -> dict[str, ModelConfig]:
        """Every setting by name, the plain one first."""
        configs = {PLAIN: ModelConfig(**self.shape, max_position_embeddings=self.seq_len)}
        for variant in self.variants:
            knobs = variant_knobs(variant)
            if self.window is not None and knobs.get("local") == "swa":
                knobs |= {"window": self.window}
            for loops in sorted({*self.loops} - {1}):
                configs[f"{variant} R={loops}"] = ModelConfig(
                    **self.shape, max_position_embeddings=self.seq_len, **(knobs | {"num_loops": loops})
                )
        return configs


@dataclass(frozen=True, kw_only=True)
class TrainPoint:
    """One setting."""

    setting: str
    ms_p50: float
    """Of one optimizer step."""
    ms_p95: float
    tokens_per_second: float
    over_plain: float
    """Median over pairs of neighbouring steps."""
    flop_utilisation: float
    """The step's FLOPs, those of every loop, over what the matrix rate allows in its time."""
    kept_bytes: int
    """What a step keeps for its backward pass, weights not counted."""


@dataclass(frozen=True, kw_only=True)
class TrainMeasurement:
    """A whole grid."""

    machine: Mapping[str, Any]
    """`hardware()` and `matrix_rate` in FLOP per second."""
    parameters: int
    """Of the plain setting."""
    grid: Mapping[str, Any]
    points: tuple[TrainPoint, ...]

    def to_plain(self) -> dict[str, Any]:
        """JSON types."""
        return asdict(self)


def measure_training(
    grid: TrainGrid, told: Callable[[str], None] = lambda _: None, clock: Clock = time.perf_counter
) -> TrainMeasurement:
    """Measure; `told` hears what begins. The caller holds the device alone."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    told(f"the machine: {device}, {grid.precision}")
    rate = matrix_rate(_DTYPES[grid.precision])
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(grid.shape["vocab_size"], (grid.batch_size, grid.seq_len + 1), generator=generator).numpy()
    batch = Batch(inputs=ids[:, :-1], targets=ids[:, 1:])
    steppers: dict[str, Stepper] = {}
    kept: dict[str, int] = {}
    for name, config in grid.settings().items():
        model = LoopedTransformer(config, device=device)
        kept[name] = kept_bytes(Stepper(model, TRAIN, Plan(grid.precision)), batch)
        steppers[name] = Stepper(model, TRAIN, Plan(grid.precision, compile=grid.compile))
    for name, stepper in steppers.items():  # a compilation forgets those before it, so all are built by now
        told(f"{name}: warming up")
        for _ in range(WARM_UP_STEPS):
            stepper.step(batch, TRAIN.lr).item()
    told(f"{len(steppers)} settings, {grid.steps} steps each")
    seconds = _time(list(steppers.values()), batch, grid.steps, clock)
    times = dict(zip(steppers, seconds, strict=True))
    tokens = grid.batch_size * grid.seq_len
    points = []
    for name, stepper in steppers.items():
        typical = median(times[name])
        points.append(
            TrainPoint(
                setting=name,
                ms_p50=1e3 * typical,
                ms_p95=1e3 * float(np.percentile(times[name], 95)),
                tokens_per_second=tokens / typical,
                over_plain=_ratio(times[name], times[PLAIN]),
                flop_utilisation=flops_per_token(stepper.model.config, grid.seq_len) * tokens / typical / rate,
                kept_bytes=kept[name],
            )
        )
    return TrainMeasurement(
        machine={**hardware(), "matrix_rate": rate},
        parameters=parameter_count(steppers[PLAIN].model.config),
        grid=asdict(grid),
        points=tuple(points),
    )


def kept_bytes(stepper: Stepper, batch: Batch) -> int:
    """Bytes of what one forward pass without compilation keeps for its backward pass, each piece of memory once."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in stepper.model.parameters()}
    found: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        stepper.accumulate_gradients(batch)
    stepper.optimizer.zero_grad(set_to_none=True)
    return sum(found.values())


def _time(steppers: Sequence[Stepper], batch: Batch, steps: int, clock: Clock) -> list[list[float]]:
    """Seconds of each step per stepper; they take turns, in order and backwards."""
    seconds: list[list[float]] = [[] for _ in steppers]
    turns = list(range(len(steppers)))
    for step in range(steps):
        for turn in turns if step % 2 == 0 else reversed(turns):
            start = clock()
            steppers[turn].step(batch, TRAIN.lr).item()
            seconds[turn].append(clock() - start)
    return seconds


def _ratio(times: Sequence[float], others: Sequence[float]) -> float:
    return median(own / other for own, other in zip(times, others, strict=True))
