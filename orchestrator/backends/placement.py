"""What each worker of one kind of attempt needs of its machine, and how several of them are placed: plain data, no Ray.

Counting follows Ray: amounts to a ten-thousandth, a fraction of a GPU always on one GPU, a node as a whole or not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Strategy = Literal["pack", "spread", "strict_pack", "strict_spread"]
"""Several workers near each other or apart, if possible or (strict) always: on one node, or each on another."""

Node = tuple[Mapping[str, float], Mapping[str, str]]
"""Resources and labels of one living node."""

_TYPE = "accelerator_type:"
"""Ray's name for the devices of one type; every node has one of its own type."""
_TYPE_AMOUNT = 0.001
_PLACE_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Of one kind of attempt."""

    cpus: float = 1.0
    gpus: float | None = None
    """None: one where the cluster has any, else none."""
    memory: int = 0
    """Bytes, as Ray counts them: nothing keeps a worker from using more."""
    accelerator: str | None = None
    """Type of the device, as Ray names it: H100, A100, ... ."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that the node must have."""
    custom: Mapping[str, float] = field(default_factory=dict)
    """Further resources of the cluster's own."""
    workers: int = 1
    """How many one attempt takes, all of them at once or none."""
    strategy: Strategy = "pack"
    timeout: float = _PLACE_SECONDS
    """Seconds for which an attempt's workers may wait for their place before it has failed."""

    def further(self) -> dict[str, float]:
        """What is reserved besides CPUs, GPUs and memory."""
        kind = {} if self.accelerator is None else {f"{_TYPE}{self.accelerator}": _TYPE_AMOUNT}
        return {**self.custom, **kind}

    def bundle(self) -> dict[str, float]:
        """All that one worker reserves, by Ray's names."""
        plain = {"CPU": self.cpus, "GPU": self.gpus or 0.0, "memory": float(self.memory), **self.further()}
        return {name: amount for name, amount in plain.items() if amount}

    def size(self) -> str:
        """One worker's size in words."""
        more = [f"{self.memory / 1e9:g} GB of memory"] if self.memory else []
        more += [f"an accelerator of type {self.accelerator}"] if self.accelerator else []
        more += [f"{amount:g} {name}" for name, amount in self.custom.items()]
        more += [f"label {name}={value}" for name, value in self.labels.items()]
        return ", ".join([f"{self.cpus:g} CPUs and {self.gpus or 0:g} GPUs", *more])

    def wants(self) -> str:
        """One attempt's size in words."""
        return self.size() if self.workers == 1 else f"{self.workers} workers with {self.size()} each"

    def slots(self, nodes: Sequence[Node]) -> int:
        """How many attempts these nodes have room for at once."""
        fits = [self._fit(resources, labels) for resources, labels in nodes]
        if self.strategy == "strict_pack":
            return sum(fit // self.workers for fit in fits)
        if self.strategy == "strict_spread":
            return _on_distinct_nodes(fits, self.workers)
        return sum(fits) // self.workers

    def _fit(self, resources: Mapping[str, float], labels: Mapping[str, str]) -> int:
        """Workers on one node. Several share a GPU, but none is split over parts of GPUs: Ray places it on one."""
        if any(labels.get(name) != value for name, value in self.labels.items()):
            return 0
        counts = [_times(resources.get(name, 0), need) for name, need in self.bundle().items() if name != "GPU"]
        gpus, whole = self.gpus or 0.0, resources.get("GPU", 0)
        counts.append(int(whole) * _times(1, gpus) if 0 < gpus < 1 else _times(whole, gpus))
        return int(min(counts))


def _on_distinct_nodes(fits: Sequence[int], workers: int) -> int:
    """The most attempts of so many workers each, no two workers of one attempt on the same node."""
    attempts = sum(fits) // workers
    while sum(min(fit, attempts) for fit in fits) < attempts * workers:
        attempts -= 1
    return attempts


def _times(have: float, need: float) -> float:
    """How often `need` is in `have`, to Ray's own precision of a ten-thousandth; without end for nothing."""
    return round(have * 10_000) // round(need * 10_000) if need else float("inf")
