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


def halved_micro_batch(config: TrainConfig, halvings: int) -> int | None:
    """Sequences per forward pass after so many halvings of what `config` asks for, at least 1; None without any."""
    if halvings == 0:
        return None
    return max(1, (config.micro_batch_size or config.batch_size) >> halvings)
