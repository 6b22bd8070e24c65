"""How a run computes its steps: in which precision, compiled or not, and how much of a batch at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from workers.config import TrainConfig

StepPrecision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Plan:
    """A decision and what it rests on."""

    precision: StepPrecision = "float32"
    """bfloat16 is autocast: parameters and optimizer state stay float32."""
    compile: bool = False
    """Whether torch.compile is used."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """In words, why `precision` and `compile` are what they are."""
    step_seconds: Mapping[str, float] = field(default_factory=dict)
    """What was timed: `float32`, `bfloat16`, `compiled` steps, and `compilation` itself."""
    micro_batch_size: int | None = None
    """Sequences per forward pass; None means what `TrainConfig` says."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "precision": self.precision,
            "compile": self.compile,
            "reasons": dict(self.reasons),
            "step_seconds": dict(self.step_seconds),
            "micro_batch_size": self.micro_batch_size,
        }


def halved_micro_batch(config: TrainConfig, halvings: int, workers: int = 1) -> int | None:
    """Sequences per forward pass after so many halvings of what `config` asks for, at least 1; None without any."""
    if halvings == 0:
        return None
    rows = config.batch_size // workers
    return max(1, min(rows, config.micro_batch_size or rows) >> halvings)


def untimed_plan(config: TrainConfig, reason: str, micro_batch_size: int | None) -> Plan:
    """What `config` sets, float32 where it leaves the precision open, and no compilation; `reason` is said."""
    precision = "float32" if config.precision == "auto" else config.precision
    reasons = {"precision": reason if config.precision == "auto" else "as set", "compile": reason}
    return Plan(precision, compile=False, reasons=reasons, micro_batch_size=micro_batch_size)
