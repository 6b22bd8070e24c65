"""How a run computes its steps: in which precision, and compiled or not."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

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

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "precision": self.precision,
            "compile": self.compile,
            "reasons": dict(self.reasons),
            "step_seconds": dict(self.step_seconds),
        }
