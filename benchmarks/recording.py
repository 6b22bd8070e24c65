"""The learning curves that `benchmarks.record_curves` recorded, as costs at any number of tokens."""

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import moocore
import numpy as np

from orchestrator.spec import StudySpec, load_spec

DATA = Path(__file__).parent / "data"
REFERENCE = 1.1
"""Of the hypervolume, in objectives scaled so that the full study's best value is 0 and its worst is 1."""

Costs = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Every configuration of one study, trained to its end."""

    spec: StudySpec
    learned: str
    """The metric that training changes; the first objective."""
    curves: tuple[dict[str, Any], ...]
    """One per configuration, as recorded."""
    known: tuple[Costs, ...]
    """Each configuration's costs that are known beforehand: the further objectives."""

    @property
    def tokens_total(self) -> int:
        """Training tokens of one configuration."""
        return int(self.curves[0]["tokens"][-1])

    def seconds_per_token(self, index: int) -> float:
        """Simulated training time: in proportion to the loops."""
        return float(self.curves[index]["num_loops"])

    def costs(self, index: int, tokens: int) -> Costs:
        """At the first evaluation that has seen at least so many tokens; small is better."""
        curve = self.curves[index]
        value = curve["metrics"][self.learned][bisect_left(curve["tokens"], tokens)]
        return (-value if self.learned.endswith("accuracy") else value, *self.known[index])

    def share(self, found: Sequence[Costs]) -> float:
        """The hypervolume of some final costs over that of the full study."""
        return self._hypervolume(found) / self._full

    def on_the_front(self) -> int:
        """How many configurations of the full study are not dominated."""
        return int(moocore.is_nondominated(self._final, keep_weakly=True).sum())

    @cached_property
    def _final(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([self.costs(index, self.tokens_total) for index in range(len(self.curves))])

    @cached_property
    def _full(self) -> float:
        return self._hypervolume(self._final.tolist())

    def _hypervolume(self, found: Sequence[Sequence[float]]) -> float:
        if not found:
            return 0.0
        best, worst = self._final.min(axis=0), self._final.max(axis=0)
        return float(moocore.hypervolume((np.array(found) - best) / (worst - best), ref=REFERENCE))


def load(name: str, learned: str) -> Recording:
    """A recording, with one of its held-out metrics as the first objective."""
    recorded = json.loads((DATA / f"{name}_curves.json").read_text(encoding="utf-8"))
    curves = tuple(recorded["configurations"].values())
    metrics = [recorded["architectures"][curve["architecture"]] for curve in curves]
    return Recording(
        spec=load_spec(DATA / f"{name}_study.yaml"),
        learned=learned,
        curves=curves,
        known=tuple((each["decode/latency_ratio"], each["kv/bytes_per_sequence"]) for each in metrics),
    )
