"""Sizes of a model known from its configuration alone: parameters, training FLOPs, cache bytes.

A multiply and an add are two FLOPs. Only matrix products are counted (projections, MLP, head, gate, attention scores
and sums), as is usual; norms, RoPE and softmax are not.
"""

from workers.config.model_config import ModelConfig


def parameter_count(config: ModelConfig) -> int:
    """Trained numbers; a tied head counts once, and loops add only the gates."""
    config = config.normalised()
    embedding = config.vocab_size * config.hidden_size
    layer = _projections(config) + _mlp(config) + 2 * config.hidden_size + _gate_parameters(config)
    head = 0 if config.tie_word_embeddings else embedding
    return embedding + config.num_hidden_layers * layer + config.hidden_size + head


def flops_per_token(config: ModelConfig, seq_len: int) -> float:
    """Forward and backward FLOPs per token of training on sequences of `seq_len` slots: three times the forward pass.

    All R loops count, as does attention over the keys that a query really sees, averaged over the sequence. Keys and
    values that nothing reads (later loops that share loop 1's and have no window) are neither computed nor counted.
    """
    config = config.normalised()
    seen_full = (seq_len + 1) / 2
    layer = 2 * (_projections(config) + _mlp(config))
    first = layer + _attention(config, seen_full)
    later: float = layer + _gate_flops(config)
    if config.local == "swa":
        later += _attention(config, seen_full + _seen_in_window(config, seq_len))
    else:
        later += _attention(config, seen_full) - (2 * _kv_projections(config) if config.kv_mode == "share_first" else 0)
    loops = config.num_hidden_layers * (first + (config.num_loops - 1) * later)
    return 3 * (loops + 2 * config.vocab_size * config.hidden_size)


def kv_bytes_per_sequence(config: ModelConfig, length: int, bytes_per_element: int) -> int:
    """Bytes of keys and values that one sequence of `length` slots needs in decoding.

    `2 * L * Hkv * dh * bytes * slots`, with slots = S for shared keys and values, S + (R-1) * min(S, window) with a
    window beside them, R * S when every loop keeps its own.
    """
    config = config.normalised()
    later = config.num_loops - 1
    if config.kv_mode == "per_loop":
        slots = length * config.num_loops
    else:
        slots = length + later * min(length, config.window or 0)
    return 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * bytes_per_element * slots


def carry_bytes_per_sequence(config: ModelConfig, bytes_per_element: int) -> int:
    """Bytes of the hidden vectors h(1)..h(R-1) that one sequence carries to its next slot; 0 without CLP."""
    config = config.normalised()
    return (config.num_loops - 1) * config.hidden_size * bytes_per_element if config.clp else 0


def _kv_projections(config: ModelConfig) -> int:
    return 2 * config.hidden_size * config.num_key_value_heads * config.head_dim


def _projections(config: ModelConfig) -> int:
    return 2 * config.hidden_size**2 + _kv_projections(config)


def _mlp(config: ModelConfig) -> int:
    return 3 * config.hidden_size * config.intermediate_size


def _gate_parameters(config: ModelConfig) -> int:
    if not config.has_gate:
        return 0
    hidden = config.gate_input == "hidden"
    width = config.hidden_size if hidden else config.head_dim
    return config.num_attention_heads * (width + 1) + (config.hidden_size if hidden else 0)


def _gate_flops(config: ModelConfig) -> int:
    if not config.has_gate:
        return 0
    return 2 * config.num_attention_heads * (config.hidden_size if config.gate_input == "hidden" else config.head_dim)


def _attention(config: ModelConfig, keys: float) -> float:
    """Scores and weighted sum of one query slot over `keys` slots, all heads."""
    return 4 * config.hidden_size * keys


def _seen_in_window(config: ModelConfig, seq_len: int) -> float:
    """Keys inside the window, averaged over the queries of a sequence."""
    window = min(config.window or 0, seq_len)
    return window * (2 * seq_len - window + 1) / (2 * seq_len)
