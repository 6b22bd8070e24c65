"""Names and shapes of a model's tensors in every layout, known from its configuration alone; no torch.

    ours, iquestpltcoder   model.layers.{i}.self_attn.plt_gate.{weight, bias, gate_norm.weight}
    iquestloopcoder        model.gate_projections.{i}.{weight, bias}
    everything else        Llama's names

Theirs always weigh the full-context branch. A gate that weighs the window is the same gate with weight and bias
negated: sigmoid(-z) = 1 - sigmoid(z), exactly.
"""

import re
from collections.abc import Mapping

from workers.config import ModelConfig
from workers.interop.layout import Layout

Shape = tuple[int, ...]

_GATE_PART = ".self_attn.plt_gate."
_GATE = re.compile(r"model\.layers\.(\d+)\.self_attn\.plt_gate\.(weight|bias)")
_ALIAS = re.compile(r"(model\.layers\.\d+\.self_attn\.)loop_gate_proj\.(.+)")


def tensor_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Our name and shape of every tensor, layer by layer."""
    width, inner = config.hidden_size, config.intermediate_size
    layer = {
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
        "self_attn.q_proj.weight": (width, width),
        "self_attn.k_proj.weight": (config.num_key_value_heads * config.head_dim, width),
        "self_attn.v_proj.weight": (config.num_key_value_heads * config.head_dim, width),
        "self_attn.o_proj.weight": (width, width),
        "mlp.gate_proj.weight": (inner, width),
        "mlp.up_proj.weight": (inner, width),
        "mlp.down_proj.weight": (width, inner),
        **_gate_shapes(config),
    }
    shapes: dict[str, Shape] = {"model.embed_tokens.weight": (config.vocab_size, width)}
    for index in range(config.num_hidden_layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (width,)
    return shapes if config.tie_word_embeddings else {**shapes, "lm_head.weight": (config.vocab_size, width)}


def layout_names(config: ModelConfig, layout: Layout) -> Mapping[str, str]:
    """Their name of every tensor, to ours."""
    return {_to_layout(name, layout): name for name in tensor_shapes(config)}


def published_name(name: str, layout: Layout) -> str:
    """The one name of a tensor that a layout's own loaders take under several."""
    match = _ALIAS.fullmatch(name) if layout is Layout.PLT else None
    return f"{match[1]}plt_gate.{match[2]}" if match else name


def is_gate(name: str) -> bool:
    """Whether one of our tensors is part of a gate."""
    return _GATE_PART in name


def is_negated(name: str, config: ModelConfig) -> bool:
    """Whether their tensor is minus ours, of that name."""
    return config.gate_polarity == "local" and _GATE.fullmatch(name) is not None


def _to_layout(name: str, layout: Layout) -> str:
    match = _GATE.fullmatch(name) if layout is Layout.LOOP else None
    return f"model.gate_projections.{match[1]}.{match[2]}" if match else name


def _gate_shapes(config: ModelConfig) -> dict[str, Shape]:
    if not config.has_gate:
        return {}
    heads, hidden = config.num_attention_heads, config.gate_input == "hidden"
    shapes: dict[str, Shape] = {
        "self_attn.plt_gate.weight": (heads, config.hidden_size if hidden else config.head_dim),
        "self_attn.plt_gate.bias": (heads,),
    }
    return {**shapes, "self_attn.plt_gate.gate_norm.weight": (config.hidden_size,)} if hidden else shapes
