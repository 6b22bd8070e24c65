"""How a model is trained: budget in tokens, optimizer, precision."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from workers.config.checks import require

Precision = Literal["auto", "float32", "bfloat16"]
Compile = Literal["auto", "on", "off"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """AdamW with linear warm-up and cosine decay over a fixed number of tokens."""

    tokens: int = 1_000_000
    """Training tokens in all."""
    batch_size: int = 16
    """Sequences per optimizer step, over all workers."""
    micro_batch_size: int | None = None
    """Sequences per forward pass; None means the whole batch at once."""
    lr: float = 3e-3
    """Peak learning rate."""
    min_lr_ratio: float = 0.1
    """Learning rate at the end over the peak."""
    warmup_ratio: float = 0.05
    """Share of the steps that warm up linearly."""
    weight_decay: float = 0.1
    """AdamW's decoupled decay, on matrices only."""
    beta1: float = 0.9
    """AdamW's first moment decay."""
    beta2: float = 0.95
    """AdamW's second moment decay."""
    grad_clip: float = 1.0
    """Largest global gradient norm."""
    precision: Precision = "auto"
    """`auto` times a step each way on this machine and keeps the faster."""
    compile: Compile = "auto"
    """Whether to use torch.compile; `auto` counts compile time against the steps it would save."""
    evaluations: int = 4
    """Evaluations during training, evenly spaced, the last one at the end."""

    def __post_init__(self) -> None:
        """Refuse values that no training run can have."""
        require(self.tokens >= 1, "tokens", self.tokens, "1 or more")
        require(self.batch_size >= 1, "batch_size", self.batch_size, "1 or more sequences")
        micro = self.micro_batch_size
        require(
            micro is None or (micro >= 1 and self.batch_size % micro == 0),
            "micro_batch_size",
            micro,
            f"a divisor of batch_size ({self.batch_size})",
        )
        require(self.lr > 0, "lr", self.lr, "positive")
        require(0 <= self.min_lr_ratio <= 1, "min_lr_ratio", self.min_lr_ratio, "from 0 to 1")
        require(0 <= self.warmup_ratio < 1, "warmup_ratio", self.warmup_ratio, "from 0 to below 1")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "0 or more")
        require(0 <= self.beta1 < 1, "beta1", self.beta1, "from 0 to below 1")
        require(0 <= self.beta2 < 1, "beta2", self.beta2, "from 0 to below 1")
        require(self.grad_clip > 0, "grad_clip", self.grad_clip, "positive")
        require(
            self.precision in ("auto", "float32", "bfloat16"), "precision", self.precision, "auto, float32 or bfloat16"
        )
        require(self.compile in ("auto", "on", "off"), "compile", self.compile, "auto, on or off")
        require(self.evaluations >= 1, "evaluations", self.evaluations, "1 or more")

    def steps(self, seq_len: int) -> int:
        """Optimizer steps that the token budget pays for, at least one."""
        return max(1, self.tokens // (self.batch_size * seq_len))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in the order of the fields."""
        return asdict(self)
