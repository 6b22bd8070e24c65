"""The shape and the loop knobs of one looped transformer.

Names of sizes are Hugging Face's Llama names, names of knobs are the field's (PLT, arXiv 2510.24824; LoopCoder-v2,
arXiv 2606.18023). A configuration is checked once, when it is made. `normalised()` drops every knob that cannot change
the function computed, so that equal models have equal fingerprints.
"""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from workers.config.checks import require

KvMode = Literal["per_loop", "share_first"]
LocalBranch = Literal["none", "swa"]
GateInput = Literal["query", "hidden"]
GatePolarity = Literal["global", "local"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One model: sizes first, then the loop knobs, then initialisation."""

    vocab_size: int
    """Number of token ids, V."""
    hidden_size: int
    """Model width, d."""
    intermediate_size: int
    """Width of the SwiGLU MLP."""
    num_hidden_layers: int
    """Layers L; the same L layers are run in every loop."""
    num_attention_heads: int
    """Query heads, H."""
    num_key_value_heads: int
    """Key and value heads, Hkv (grouped-query attention when fewer than H)."""
    max_position_embeddings: int = 2048
    """Longest sequence, in slots."""
    rms_norm_eps: float = 1e-5
    """Added to the mean square in every RMSNorm."""
    rope_theta: float = 10000.0
    """Base of the rotary frequencies."""
    tie_word_embeddings: bool = False
    """Whether the head is the embedding matrix."""

    num_loops: int = 1
    """R: how often the layer stack is run per token; 1 is a plain transformer."""
    clp: bool = False
    """Cross-loop parallelism: loop r at slot t starts from loop r-1 at slot t-1 (zero at slot 0)."""
    reinject: bool = False
    """Add the token embedding to the input of every later loop."""
    emb_scale: float = 1.0
    """a: scale of the re-injected embedding."""
    hidden_scale: float = 1.0
    """b: scale of the state that the previous loop hands on."""
    norm_per_loop: bool = False
    """Apply the final norm at the end of every loop, so that what is handed on is normalised."""
    kv_mode: KvMode = "per_loop"
    """Whose keys and values the full-context attention of later loops reads."""
    local: LocalBranch = "none"
    """Whether later loops have a gated sliding-window branch over their own keys and values (G-SWA)."""
    window: int | None = None
    """Width of the sliding window in tokens, the current one included."""
    gate_input: GateInput | None = None
    """What the gate reads: the query after RoPE, or its own RMSNorm of the residual stream entering the layer."""
    gate_polarity: GatePolarity | None = None
    """Which branch the gate value multiplies."""
    gate_mode: float | Literal["learned"] | None = None
    """A learned gate, or a fixed number in [0, 1] (the ablations)."""
    gate_bias_init: float | None = None
    """Initial gate bias, counted in the direction of the global branch; +2 starts at sigmoid(2) = 0.88 global."""

    embedding_init_std: float = 1.0
    """Standard deviation of the initial embeddings. Looped models need it near 1: at 0.02 loops made them worse."""

    def __post_init__(self) -> None:
        """Refuse sizes and knobs that no model can have."""
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "max_position_embeddings",
            "num_loops",
        ):
            _require(
                _is_int(getattr(self, name)) and getattr(self, name) >= 1, name, self, "a whole number of 1 or more"
            )
        for name in ("tie_word_embeddings", "clp", "reinject", "norm_per_loop"):
            _require(isinstance(getattr(self, name), bool), name, self, "true or false")
        for name in ("rms_norm_eps", "rope_theta", "emb_scale", "hidden_scale", "embedding_init_std"):
            _require(isinstance(getattr(self, name), int | float), name, self, "a number")
        _require(
            self.hidden_size % self.num_attention_heads == 0,
            "hidden_size",
            self,
            f"a multiple of num_attention_heads ({self.num_attention_heads})",
        )
        _require(self.head_dim % 2 == 0, "head_dim", self, "even, because RoPE turns pairs")
        _require(
            self.num_attention_heads % self.num_key_value_heads == 0,
            "num_key_value_heads",
            self,
            f"a divisor of num_attention_heads ({self.num_attention_heads})",
        )
        _require(self.kv_mode in ("per_loop", "share_first"), "kv_mode", self, "per_loop or share_first")
        _require(self.local in ("none", "swa"), "local", self, "none or swa")
        _require(self.rms_norm_eps > 0, "rms_norm_eps", self, "positive")
        _require(self.rope_theta > 0, "rope_theta", self, "positive")
        _require(self.embedding_init_std > 0, "embedding_init_std", self, "positive")
        if self.local == "swa":
            self._check_local_branch()

    def _check_local_branch(self) -> None:
        _require(_is_int(self.window) and (self.window or 0) >= 1, "window", self, "1 or more tokens when local is swa")
        _require(self.gate_input in ("query", "hidden"), "gate_input", self, "query or hidden when local is swa")
        _require(self.gate_polarity in ("global", "local"), "gate_polarity", self, "global or local when local is swa")
        fixed = self.fixed_gate
        learned = self.gate_mode in ("learned", None)
        _require(
            learned or (fixed is not None and 0.0 <= fixed <= 1.0),
            "gate_mode",
            self,
            "learned, or a number from 0 to 1",
        )

    @property
    def head_dim(self) -> int:
        """Width of one attention head, dh = d / H."""
        return self.hidden_size // self.num_attention_heads

    @property
    def fixed_gate(self) -> float | None:
        """The fixed gate value, or None when the gate is learned."""
        if isinstance(self.gate_mode, int | float) and not isinstance(self.gate_mode, bool):
            return float(self.gate_mode)
        return None

    @property
    def has_gate(self) -> bool:
        """Whether the model has trained gate parameters."""
        return self.num_loops > 1 and self.local == "swa" and self.fixed_gate is None

    @property
    def parallel_loops(self) -> bool:
        """Whether all loops of a slot can run in one decoding pass (they can with CLP, and when there is one loop)."""
        return self.clp or self.num_loops == 1

    def normalised(self) -> "ModelConfig":
        """The same model with every knob that cannot matter set to its default."""
        if self.num_loops == 1:
            return replace(self, **_LOOP_DEFAULTS)
        changes: dict[str, Any] = {}
        if not self.reinject:
            changes["emb_scale"] = 1.0
        if self.local == "none" or self._global_share() == 1.0:
            changes |= _NO_LOCAL_BRANCH
        elif self.fixed_gate is not None:
            changes |= {
                "gate_mode": self._global_share(),
                "gate_polarity": "global",
                "gate_input": "query",
                "gate_bias_init": None,
            }
        else:
            changes |= {"gate_mode": "learned", "gate_bias_init": float(self.gate_bias_init or 0.0)}
        return replace(self, **changes)

    def _global_share(self) -> float | None:
        """The fixed weight of the global branch, or None when the gate is learned."""
        if self.local == "none" or self.fixed_gate is None:
            return None
        return self.fixed_gate if self.gate_polarity == "global" else 1.0 - self.fixed_gate

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in the order of the fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ModelConfig":
        """Read plain data, refusing keys that are not fields."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise ValueError(f"unknown model settings: {', '.join(unknown)}")
        return cls(**data)


_NO_LOCAL_BRANCH: dict[str, Any] = {
    "local": "none",
    "window": None,
    "gate_input": None,
    "gate_polarity": None,
    "gate_mode": None,
    "gate_bias_init": None,
}
_LOOP_DEFAULTS: dict[str, Any] = {
    "clp": False,
    "reinject": False,
    "emb_scale": 1.0,
    "hidden_scale": 1.0,
    "norm_per_loop": False,
    "kv_mode": "per_loop",
    **_NO_LOCAL_BRANCH,
}


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _require(condition: bool, name: str, config: ModelConfig, allowed: str) -> None:
    require(condition, name, getattr(config, name), allowed)
