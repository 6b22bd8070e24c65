"""Configuration of looped transformers with cross-loop parallelism, for Hugging Face transformers 4.57 and newer.

The `plt_*` settings up to `plt_gate_use_hidden_states` are LoopCoder-v2's (arXiv 2606.18023). The ones after it make
this class cover every looped variant; their defaults are LoopCoder-v2's behaviour.
"""

from collections.abc import Sequence
from typing import Any

from transformers import PretrainedConfig


class IQuestPLTCoderConfig(PretrainedConfig):
    """Sizes under Llama's names, loops under LoopCoder-v2's."""

    model_type = "iquestpltcoder"

    def __init__(
        self,
        vocab_size: int = 76800,
        hidden_size: int = 5120,
        intermediate_size: int = 27648,
        num_hidden_layers: int = 14,
        num_attention_heads: int = 40,
        num_key_value_heads: int = 8,
        max_position_embeddings: int = 131072,
        rms_norm_eps: float = 1e-5,
        initializer_range: float = 0.02,
        tie_word_embeddings: bool = False,
        rope_theta: float = 500000.0,
        rope_parameters: dict[str, Any] | None = None,
        plt_num_loops: int = 2,
        plt_window_size: Sequence[int] = (64, 0),
        plt_normalize_per_loop: bool = True,
        plt_emb_scale: float | None = None,
        plt_hidden_scale: float | None = None,
        plt_gate_use_hidden_states: bool = False,
        plt_clp: bool = True,
        plt_reinject: bool = True,
        plt_share_kv: bool = True,
        plt_local: bool = True,
        plt_fixed_gate: float | None = None,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = hidden_size // num_attention_heads
        self.max_position_embeddings = max_position_embeddings
        self.rms_norm_eps = rms_norm_eps
        self.initializer_range = initializer_range
        self.rope_theta = rope_theta
        self.rope_parameters = rope_parameters or {"rope_type": "default", "rope_theta": rope_theta}
        self.plt_num_loops = plt_num_loops
        self.plt_window_size = list(plt_window_size)
        self.plt_normalize_per_loop = plt_normalize_per_loop
        self.plt_emb_scale = plt_emb_scale
        self.plt_hidden_scale = plt_hidden_scale
        self.plt_gate_use_hidden_states = plt_gate_use_hidden_states
        self.plt_clp = plt_clp
        self.plt_reinject = plt_reinject
        self.plt_share_kv = plt_share_kv
        self.plt_local = plt_local
        self.plt_fixed_gate = plt_fixed_gate
        super().__init__(tie_word_embeddings=tie_word_embeddings, **kwargs)

    def loop_settings(self) -> dict[str, Any]:
        """What the model code asks for: the same keys as every configuration that it can run."""
        return {
            "num_loops": self.plt_num_loops,
            "window": self.plt_window_size[0] + 1,  # the current token is not counted in the setting
            "norm_per_loop": self.plt_normalize_per_loop,
            "emb_scale": 1.0 if self.plt_emb_scale is None else self.plt_emb_scale,
            "hidden_scale": 1.0 if self.plt_hidden_scale is None else self.plt_hidden_scale,
            "hidden_gate": self.plt_gate_use_hidden_states,
            "clp": self.plt_clp,
            "reinject": self.plt_reinject,
            "share_kv": self.plt_share_kv,
            "local": self.plt_local,
            "fixed_gate": self.plt_fixed_gate,
        }
