"""`auto` precision and compilation, decided by timing real optimizer steps of a copy of the model on this machine.

First float32 steps without compilation are timed, which gives the length of the whole run. bfloat16 is tried only in a
run long enough to matter and taken only when clearly faster; torch.compile is tried only in a run longer than a
compilation usually takes, and taken only when the steps it saves outweigh the compilation that was measured. So short
runs always compute in the same way, whatever the noise of the machine.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from workers.config import TrainConfig
from workers.data import Dataset
from workers.models import LoopedTransformer
from workers.training.plan import Plan, StepPrecision
from workers.training.stepper import Stepper

BFLOAT16_WORTH_SECONDS = 30.0
"""Length of a float32 run from which bfloat16 is tried."""
BFLOAT16_MARGIN = 1.2
"""How many times faster bfloat16 must be to be worth its rounding."""
COMPILE_WORTH_SECONDS = 120.0
"""Length of an eager run from which torch.compile is tried; a compilation takes tens of seconds."""
TIMED_STEPS = 3
TIMED_SECONDS = 2.0
"""Timing stops after so many steps or so many seconds, whichever comes first."""


def choose_plan(
    model: LoopedTransformer,
    dataset: Dataset,
    config: TrainConfig,
    *,
    seed: int,
    clock: Callable[[], float],
    micro_batch_size: int | None = None,
    world: int = 1,
) -> Plan:
    """The plan that `config` asks for, with `auto` decided; `model` is left as it is.

    `micro_batch_size` overrides the one of `config`, in the timed steps too. Of a batch that `world` workers share the
    rows of one are timed, by one.
    """
    if config.precision != "auto" and config.compile != "auto":
        reasons = {"precision": "as set", "compile": "as set"}
        return Plan(config.precision, config.compile == "on", reasons, micro_batch_size=micro_batch_size)
    tuner = _Tuner(model, dataset, config, seed, clock, micro_batch_size, world)
    precision = tuner.precision()
    compiled = tuner.compile(precision)
    return Plan(precision, compiled, tuner.reasons, tuner.step_seconds, micro_batch_size)


@dataclass
class _Tuner:
    model: LoopedTransformer
    dataset: Dataset
    config: TrainConfig
    seed: int
    clock: Callable[[], float]
    micro_batch_size: int | None = None
    world: int = 1
    reasons: dict[str, str] = field(default_factory=dict)
    step_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return self.config.steps(self.dataset.seq_len)

    def precision(self) -> StepPrecision:
        """bfloat16 if it is asked for, or clearly faster in a run that is long enough; else float32."""
        if self.config.precision != "auto":
            self.reasons["precision"] = "as set"
            return self.config.precision
        float32 = self._time("float32", Plan("float32"))
        if float32 * self.steps < BFLOAT16_WORTH_SECONDS:
            self.reasons["precision"] = f"a run of {float32 * self.steps:.1f} s is too short for bfloat16 to matter"
            return "float32"
        ratio = float32 / self._time("bfloat16", Plan("bfloat16"))
        self.reasons["precision"] = f"bfloat16 steps are {ratio:.2f} times as fast as float32 ones"
        return "bfloat16" if ratio >= BFLOAT16_MARGIN else "float32"

    def compile(self, precision: StepPrecision) -> bool:
        """Whether compiling pays for itself, with the compilation counted."""
        if self.config.compile != "auto":
            self.reasons["compile"] = "as set"
            return self.config.compile == "on"
        step = self.step_seconds.get(precision) or self._time(precision, Plan(precision))
        eager = step * self.steps
        if eager < COMPILE_WORTH_SECONDS:
            self.reasons["compile"] = f"a run of {eager:.1f} s is too short to pay for a compilation"
            return False
        try:
            compiled = self._time("compiled", Plan(precision, compile=True), first_step="compilation") * self.steps
        except Exception as error:  # whatever the compiler cannot do, eager steps can
            self.reasons["compile"] = (
                f"compilation failed: {type(error).__name__}: {str(error).strip().splitlines()[:1]}"
            )
            return False
        cost = self.step_seconds["compilation"]
        self.reasons["compile"] = f"{eager:.0f} s eager, {compiled:.0f} s compiled after {cost:.0f} s of compilation"
        return compiled + cost < eager

    def _time(self, name: str, plan: Plan, first_step: str | None = None) -> float:
        """Seconds of the fastest of a few steps of a copy, after a first one that is timed apart."""
        stepper = Stepper(copy.deepcopy(self.model), self.config, replace(plan, micro_batch_size=self.micro_batch_size))
        times: list[float] = []
        while len(times) <= TIMED_STEPS and sum(times[1:]) < TIMED_SECONDS:
            size, world = self.config.batch_size, self.world
            batch = self.dataset.train_batch(len(times), seed=self.seed, batch_size=size, world=world)
            started = self.clock()
            stepper.step(batch, self.config.lr).item()
            times.append(self.clock() - started)
        if first_step:
            self.step_seconds[first_step] = times[0]
        self.step_seconds[name] = min(times[1:])
        return self.step_seconds[name]
