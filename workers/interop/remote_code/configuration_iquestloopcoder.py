"""Configuration of looped transformers without cross-loop parallelism, for transformers 4.57 and newer, and vLLM.

The settings are IQuest-Coder-V1-Loop's: `loop_window_size` counts the current token.
"""

from typing import Any

from transformers import PretrainedConfig


class IQuestLoopCoderConfig(PretrainedConfig):
    """Sizes under Llama's names, the loop count and the window."""

    model_type = "iquestloopcoder"

    def __init__(
        self,
        vocab_size: int = 76800,
        hidden_size: int = 5120,
        intermediate_size: int = 27648,
        num_hidden_layers: int = 80,
        num_attention_heads: int = 40,
        num_key_value_heads: int = 8,
        max_position_embeddings: int = 131072,
        rms_norm_eps: float = 1e-5,
        initializer_range: float = 0.02,
        tie_word_embeddings: bool = False,
        rope_theta: float = 500000.0,
        rope_parameters: dict[str, Any] | None = None,
        loop_num: int = 2,
        loop_window_size: int = 64,
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
        self.loop_num = loop_num
        self.loop_window_size = loop_window_size
        super().__init__(tie_word_embeddings=tie_word_embeddings, **kwargs)

    def loop_settings(self) -> dict[str, Any]:
        """What the model code asks for: the same keys as every configuration that it can run."""
        return {
            "num_loops": self.loop_num,
            "window": self.loop_window_size,
            "norm_per_loop": False,
            "emb_scale": 1.0,
            "hidden_scale": 1.0,
            "hidden_gate": False,
            "clp": False,
            "reinject": False,
            "share_kv": True,
            "local": True,
            "fixed_gate": None,
        }
