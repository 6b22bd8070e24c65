"""What an attempt has found out so far; it survives the attempt's failure and, in a saved state, its process."""

from dataclasses import dataclass, field
from typing import Any

from workers.protocol import LoopValue


@dataclass
class Known:
    """Grows while the attempt runs; its outcome carries all of it."""

    metrics: dict[str, float] = field(default_factory=dict)
    """Last value of each metric."""
    info: dict[str, Any] = field(default_factory=dict)
    """Plain facts."""
    loops: tuple[LoopValue, ...] = ()
    """Loop diagnostics of the trained model."""
