"""How decode latency and KV memory are measured."""

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class BenchmarkConfig:
    """The grid of one decode benchmark. The first batch size gives the headline metrics."""

    batch_sizes: tuple[int, ...] = (1,)
    """Sequences decoded together."""
    context: int = 512
    """Tokens already in the caches when timing starts."""
    generate: int = 32
    """Timed decode steps per repeat."""
    repeats: int = 3
    """Interleaved repeats of the model and its non-looped twin."""
    precision: Literal["bfloat16", "float32"] = "bfloat16"
    """Type of weights and caches."""

    def __post_init__(self) -> None:
        """Refuse values that no benchmark can have."""
        if not self.batch_sizes or any(size < 1 for size in self.batch_sizes):
            raise ValueError(f"batch_sizes is {self.batch_sizes!r}; it must be one or more sizes of 1 or more")
        for name in ("context", "generate", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be 1 or more")
        if self.precision not in ("bfloat16", "float32"):
            raise ValueError(f"precision is {self.precision!r}; it must be bfloat16 or float32")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in the order of the fields."""
        return asdict(self)
