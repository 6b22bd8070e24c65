"""What is asked of an engine: log probabilities over the whole vocabulary, prefilled and then one token at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
LogProbs = NDArray[np.float32]

Run = Callable[[Path, Ids, int], tuple[Ids, LogProbs]]
"""(folder, ids (B, S), slots to prefill) to the ids that were really run (B, S') and the log probabilities after each
slot (B, S', V), NaN where the engine gives none."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One engine."""

    name: str
    package: str
    """The module whose presence means that it is installed."""
    distribution: str
    """Under which the version is found."""
    layouts: tuple[str, ...]
    limit: float
    """Largest difference of a log probability, in float32, at which the engine computes the same function."""
    run: Run
    needs_gguf: bool = False
    """Whether the folder must hold `model.gguf`."""
    loops: tuple[int, ...] | None = None
    """Loop counts that it runs; None: any."""
    head_dims: tuple[int, ...] | None = None
    """Head widths that it runs; None: any."""

    def refusal(self, layout: str, num_loops: int, head_dim: int) -> str | None:
        """Why this engine cannot run a model, or None."""
        if layout not in self.layouts:
            return f"does not know {layout}"
        if self.loops is not None and num_loops not in self.loops:
            return f"runs {', '.join(map(str, self.loops))} loops only, not {num_loops}"
        if self.head_dims is not None and head_dim not in self.head_dims:
            return f"has no kernel for heads of width {head_dim}"
        return None


def log_softmax(logits: NDArray[np.floating]) -> LogProbs:
    """Log probabilities over the last dimension."""
    wide = logits.astype(np.float64)
    wide -= wide.max(-1, keepdims=True)
    log_probs: LogProbs = (wide - np.log(np.exp(wide).sum(-1, keepdims=True))).astype(np.float32)
    return log_probs
