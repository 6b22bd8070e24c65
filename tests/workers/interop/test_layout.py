"""Which layout a model has, why the others are refused, and settings and names that come back as they went."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from workers.config import VARIANTS, ModelConfig, variant_knobs
from workers.interop.errors import InteropError
from workers.interop.layout import Layout, choose_layout, refusals, require_layout
from workers.interop.names import layout_names, tensor_shapes
from workers.interop.settings import read_settings, write_settings
from workers.models import LoopedTransformer

Make = Callable[..., Any]
SIZES = {
    "vocab_size": 61,
    "hidden_size": 64,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


def config_of(variant: str, **knobs: Any) -> ModelConfig:
    return ModelConfig(**{**SIZES, **variant_knobs(variant), **knobs}).normalised()


@pytest.mark.parametrize(
    ("variant", "layout"),
    [
        ("vanilla", Layout.LLAMA),
        ("loop", Layout.PLT),
        ("loop+clp", Layout.PLT),
        ("loop+clp+share", Layout.PLT),
        ("plt", Layout.PLT),
        ("loopcoder-v2", Layout.PLT),
        ("iquest-loop", Layout.LOOP),
    ],
)
def test_every_variant_has_its_layout(variant: str, layout: Layout) -> None:
    assert choose_layout(config_of(variant)) is layout
    assert choose_layout(config_of(variant, num_loops=1)) is Layout.LLAMA


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"clp": True}, "clp is on, and the layout has no cross-loop shift"),
        ({"reinject": True}, "reinject is on"),
        ({"norm_per_loop": True}, "norm_per_loop is on"),
        ({"hidden_scale": 0.5}, "hidden_scale is 0.5"),
        ({"kv_mode": "per_loop"}, "kv_mode is per_loop"),
        ({"gate_input": "hidden"}, "gate_input is hidden"),
        ({"gate_mode": 0.5}, "gate_mode is 0.5"),
        ({"local": "none"}, "local is none"),
    ],
)
def test_what_a_loop_engine_would_compute_otherwise_is_refused(knobs: dict, reason: str) -> None:
    config = config_of("iquest-loop", **knobs)
    (only,) = refusals(config, Layout.LOOP)
    assert only.startswith(reason)
    with pytest.raises(InteropError, match=r"iquestloopcoder cannot express it: .*; use iquestpltcoder"):
        require_layout(config, Layout.LOOP)


def test_every_reason_is_given_at_once() -> None:
    assert len(refusals(config_of("loopcoder-v2"), Layout.LOOP)) == 5
    with pytest.raises(InteropError, match="llama cannot express it: it has 2 loops"):
        require_layout(config_of("plt"), Layout.LLAMA)
    with pytest.raises(InteropError, match="iquestpltcoder cannot express it: it has one loop"):
        require_layout(config_of("vanilla"), Layout.PLT)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("knobs", [{}, {"tie_word_embeddings": True, "rope_theta": 5e5, "gate_polarity": "local"}])
def test_settings_come_back_as_they_went(variant: str, knobs: dict) -> None:
    config = config_of(variant, **knobs)
    for layout in (layout for layout in Layout if not refusals(config, layout)):
        written = json.loads(json.dumps(write_settings(config, layout, "bfloat16", 60)))
        read, found, dtype = read_settings(written)
        assert (found, dtype) == (layout, "bfloat16")
        assert write_settings(read, layout, "bfloat16", 60) == written
        weighed = {"gate_polarity": read.gate_polarity, "gate_bias_init": read.gate_bias_init}
        initial = {"embedding_init_std": read.embedding_init_std}
        assert read == ModelConfig(**{**config.to_dict(), **weighed, **initial})


@pytest.mark.parametrize("knobs", [{}, {"gate_mode": 0.5}, {"num_loops": 1}, {"tie_word_embeddings": True}])
@pytest.mark.parametrize("variant", VARIANTS)
def test_shapes_are_those_of_the_model(variant: str, knobs: dict) -> None:
    config = config_of(variant, **knobs)
    state = LoopedTransformer(config, device="meta").state_dict()
    assert tensor_shapes(config) == {name: tuple(tensor.shape) for name, tensor in state.items()}


def test_a_gate_that_weighs_the_window_is_written_the_other_way_round(made: Make) -> None:
    ours = made("iquest-loop", gate_polarity="local")
    before, after = load_file(ours.checkpoint / "model.safetensors"), load_file(ours.folder / "model.safetensors")
    for index in range(2):
        gate = f"model.layers.{index}.self_attn.plt_gate"
        for part in ("weight", "bias"):
            assert torch.equal(after[f"model.gate_projections.{index}.{part}"], -before[f"{gate}.{part}"])
    others = {name for name in before if "plt_gate" not in name}
    assert all(torch.equal(before[name], after[name]) for name in others)


def published(**changes: Any) -> dict[str, Any]:
    """IQuest-Coder-V1-Loop's own config.json."""
    return {
        "architectures": ["IQuestLoopCoderForCausalLM"],
        "model_type": "iquestloopcoder",
        "vocab_size": 76800,
        "hidden_size": 5120,
        "intermediate_size": 27648,
        "num_hidden_layers": 80,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "hidden_act": "silu",
        "max_position_embeddings": 131072,
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-5,
        "use_cache": True,
        "tie_word_embeddings": False,
        "rope_theta": 500000,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "loop_num": 2,
        "loop_window_size": 64,
        "torch_dtype": "bfloat16",
        "eos_token_id": [2, 75864, 75869],
        "transformers_version": "4.55.4",
        "auto_map": {
            "AutoConfig": "configuration_iquestloopcoder.IQuestLoopCoderConfig",
            "AutoModel": "modeling_iquestloopcoder.IQuestLoopCoderModel",
            "AutoModelForCausalLM": "modeling_iquestloopcoder.IQuestLoopCoderForCausalLM",
        },
        **changes,
    }


def test_the_published_40b_model() -> None:
    config, layout, dtype = read_settings(published())
    assert (layout, dtype, config.window, config.gate_polarity) == (Layout.LOOP, "bfloat16", 64, "global")
    state = LoopedTransformer(config, device="meta", dtype=torch.bfloat16).state_dict()
    shapes = {name: tuple(state[ours].shape) for name, ours in layout_names(config, layout).items()}
    assert len(shapes) == 883 == 11 * 80 + 3
    assert sum(tensor.numel() for tensor in state.values()) == 39_794_696_320
    assert {name: shape for name, shape in shapes.items() if ".79" in name} == {
        "model.layers.79.input_layernorm.weight": (5120,),
        "model.layers.79.post_attention_layernorm.weight": (5120,),
        "model.layers.79.self_attn.q_proj.weight": (5120, 5120),
        "model.layers.79.self_attn.k_proj.weight": (1024, 5120),
        "model.layers.79.self_attn.v_proj.weight": (1024, 5120),
        "model.layers.79.self_attn.o_proj.weight": (5120, 5120),
        "model.layers.79.mlp.gate_proj.weight": (27648, 5120),
        "model.layers.79.mlp.up_proj.weight": (27648, 5120),
        "model.layers.79.mlp.down_proj.weight": (5120, 27648),
        "model.gate_projections.79.weight": (40, 128),
        "model.gate_projections.79.bias": (40,),
    }
    assert {name: shape for name, shape in shapes.items() if ".layers." not in name and "gate" not in name} == {
        "model.embed_tokens.weight": (76800, 5120),
        "model.norm.weight": (5120,),
        "lm_head.weight": (76800, 5120),
    }


def test_the_published_7b_model() -> None:
    """LoopCoder-v2 as released: hidden gates, scales of its own, a window of 65 tokens."""
    settings = {
        **{name: value for name, value in published().items() if not name.startswith("loop_")},
        "architectures": ["IQuestPLTCoderForCausalLM"],
        "model_type": "iquestpltcoder",
        "num_hidden_layers": 14,
        "plt_num_loops": 2,
        "plt_window_size": [64, 0],
        "plt_normalize_per_loop": True,
        "plt_emb_scale": 0.707,
        "plt_hidden_scale": 0.053,
        "plt_gate_use_hidden_states": True,
    }
    config, layout, _ = read_settings(settings)
    expected = config_of("loopcoder-v2", **{name: settings[name] for name in ("vocab_size", "hidden_size")}, **{
        "intermediate_size": 27648, "num_hidden_layers": 14, "num_attention_heads": 40, "num_key_value_heads": 8,
        "max_position_embeddings": 131072, "rope_theta": 500000,
    })  # fmt: skip
    assert (config, layout) == (expected, Layout.PLT)
    state = LoopedTransformer(config, device="meta").state_dict()
    names = layout_names(config, layout)
    assert len(names) == 12 * 14 + 3 == len(state)
    layer = 2 * 5120**2 + 2 * 1024 * 5120 + 3 * 27648 * 5120 + 2 * 5120 + 40 * 5120 + 40 + 5120
    total = 14 * layer + 2 * 76800 * 5120 + 5120
    assert sum(tensor.numel() for tensor in state.values()) == total == 7_615_749_680
    gate = "model.layers.13.self_attn.plt_gate"
    shapes = {name: tuple(state[ours].shape) for name, ours in names.items()}
    assert (shapes[f"{gate}.weight"], shapes[f"{gate}.bias"]) == ((40, 5120), (40,))
    assert shapes[f"{gate}.gate_norm.weight"] == (5120,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "qwen3"}, "model_type is 'qwen3'; it must be one of llama, iquestloopcoder, iquestpltcoder"),
        ({"architectures": ["LlamaForCausalLM"]}, r"architectures is \['LlamaForCausalLM'\]"),
        ({"loop_num": 1}, "loop_num is 1; a looped layout has from 2 to 64 loops"),
        ({"loop_num": 10**9}, "loop_num is 1000000000"),
        ({"loop_num": "2"}, "loop_num is '2'"),
        ({"loop_window_size": 0}, "window is 0"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"head_dim": 64}, r"head_dim is 64; it must be hidden_size / num_attention_heads \(128\)"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling is .*unscaled rotary positions only"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, "rope_theta is 500000 and rope_parameters"),
        ({"torch_dtype": "int8"}, "torch_dtype is 'int8'"),
        ({"layer_types": ["sliding_attention"]}, "layer_types has other layers"),
        ({"num_experts": 8}, "unknown settings num_experts"),
        ({"plt_num_loops": 3}, "unknown settings plt_num_loops"),
        ({"hidden_size": -4}, "hidden_size is -4"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide'"),
        ({"vocab_size": None}, "vocab_size"),
    ],
)
def test_settings_that_this_model_has_no_equal_for(changes: dict, message: str) -> None:
    with pytest.raises(InteropError, match=message):
        read_settings(published(**changes))
